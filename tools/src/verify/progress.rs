//! The progress bar of a check.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use redrive::log_dir::verify::VerifyProgress;

use crate::text::{duration, size};

/// Columns of the widest usual message.
const MESSAGE: usize = 40;

/// Draws on standard error how far a check is. One that ends before the first report draws nothing.
pub(super) struct Bar {
    shows: bool,
    bar: Option<ProgressBar>,
}

impl Bar {
    pub(super) fn new(shows: bool) -> Self {
        Self { shows, bar: None }
    }

    pub(super) fn show(&mut self, progress: &VerifyProgress) {
        if !self.shows || self.bar.is_none() && progress.partitions == progress.partitions_total {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let target = ProgressDrawTarget::stderr_with_hz(10);
            let bar = ProgressBar::with_draw_target(Some(progress.bytes_total), target);
            if let Ok(style) = ProgressStyle::with_template("  {prefix}\n  {wide_bar} {percent:>3} %  {msg}")
            {
                bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏ "));
            }
            bar
        });
        bar.set_prefix(format!(
            "{} of {} partitions · {}",
            progress.partitions,
            progress.partitions_total,
            size(progress.bytes_total)
        ));
        // Of one width, so that the bar keeps its own.
        bar.set_message(format!("{:<MESSAGE$}", message(progress)));
        bar.set_position(progress.bytes);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Bytes done, the rate, and the time left at that rate.
fn message(progress: &VerifyProgress) -> String {
    let mut message = size(progress.bytes);
    let seconds = progress.elapsed.as_secs_f64();
    if seconds > 0.0 && progress.bytes > 0 {
        let rate = progress.bytes as f64 / seconds;
        let left = progress.bytes_total.saturating_sub(progress.bytes) as f64 / rate;
        // Whole seconds: more would flicker.
        let left = Duration::from_secs((left.ceil() as u64).max(1));
        message.push_str(&format!(" · {}/s · {} left", size(rate as u64), duration(left)));
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_tells_rate_and_time_left() {
        let mut progress = VerifyProgress::default();
        assert_eq!(message(&progress), "0 B");
        progress.bytes = 8_900_000_000;
        progress.bytes_total = 11_800_000_000;
        progress.elapsed = Duration::from_secs(5);
        assert_eq!(message(&progress), "8.9 GB · 1.8 GB/s · 2 s left");
    }
}
