//! The progress bar of a load.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use redrive::replay::{Observer, Progress};

use crate::text::{duration, sanitize, short, size};

/// Columns of the widest usual message; with them the line fits into 80, a short bar included.
const MESSAGE: usize = 58;

/// Draws on standard error how far a load is. A load that ends before the first report draws nothing.
pub(crate) struct Bar {
    topic: String,
    shows: bool,
    bar: Option<ProgressBar>,
}

impl Bar {
    /// A bar that is drawn, or not.
    pub(crate) fn new(topic: &str, shows: bool) -> Self {
        Self { topic: sanitize(topic), shows, bar: None }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Observer for Bar {
    fn progress(&mut self, progress: &Progress) {
        if !self.shows || self.bar.is_none() && progress.partitions == progress.partitions_total {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(
                Some(progress.bytes_total),
                ProgressDrawTarget::stderr_with_hz(10),
            );
            if let Ok(style) = ProgressStyle::with_template("  {prefix}\n  {wide_bar} {percent:>3} %  {msg}")
            {
                bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏ "));
            }
            bar
        });
        bar.set_prefix(format!(
            "{}  {} of {} partitions · {} · page cache: {}",
            self.topic,
            progress.partitions,
            progress.partitions_total,
            size(progress.bytes_total),
            progress.cache.name()
        ));
        // Of one width, so that the bar keeps its own.
        bar.set_message(format!("{:<MESSAGE$}", message(progress)));
        bar.set_position(progress.bytes);
    }
}

/// Bytes, records and ids done, the rate, and the time left at that rate.
fn message(progress: &Progress) -> String {
    let mut message = format!(
        "{} · {} records · {} ids",
        size(progress.bytes),
        short(progress.records),
        short(progress.ids)
    );
    let seconds = progress.elapsed.as_secs_f64();
    if seconds > 0.0 && progress.bytes > 0 {
        let rate = progress.bytes as f64 / seconds;
        let left = progress.bytes_total.saturating_sub(progress.bytes) as f64 / rate;
        // Whole seconds: more would flicker.
        let left = Duration::from_secs(left.ceil() as u64);
        message.push_str(&format!(
            " · {}/s · {} left",
            size(rate as u64),
            duration(left.max(Duration::from_secs(1)))
        ));
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_tells_all_five() {
        let mut progress = Progress::default();
        assert_eq!(message(&progress), "0 B · 0 records · 0 ids");
        progress.bytes = 8_900_000_000;
        progress.bytes_total = 11_800_000_000;
        progress.records = 43_100_000;
        progress.ids = 6_200_000;
        progress.elapsed = Duration::from_secs(5);
        assert_eq!(message(&progress), "8.9 GB · 43.1 M records · 6.2 M ids · 1.8 GB/s · 2 s left");
    }
}
