//! Standard output and standard error, as far as commands need to know what they are connected to.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, BufWriter, IsTerminal, Write};

use crate::failure::{Failure, Status};
use crate::text::sanitize;

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always, also into a pipe
    Always,
    /// Never
    Never,
}

impl ColorChoice {
    /// Whether a stream gets colours. `NO_COLOR` counts if it is set to anything but the empty string
    /// (<https://no-color.org>).
    pub fn applies(self, is_terminal: bool) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        }
    }

    /// The choice on a command line that could not be understood as a whole.
    pub fn guess(args: &[OsString]) -> Self {
        let mut choice = Self::default();
        for (i, arg) in args.iter().enumerate() {
            let value = match arg.to_str() {
                Some("--color") => args.get(i + 1).and_then(|next| next.to_str()),
                Some(arg) => arg.strip_prefix("--color="),
                None => None,
            };
            choice = match value {
                Some("always") => Self::Always,
                Some("never") => Self::Never,
                _ => choice,
            };
        }
        choice
    }
}

/// A way to make text stand out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// What a reader looks for first.
    Bold,
    /// What may be skipped.
    Dim,
    /// All is well.
    Good,
    /// Worth a look.
    Warning,
    /// Something is wrong.
    Bad,
}

/// Colours one stream, or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paint(pub bool);

impl Paint {
    /// The text in that style. The text must be safe for a terminal already.
    pub fn style(self, style: Style, text: impl fmt::Display) -> String {
        let code = match style {
            Style::Bold => "1",
            Style::Dim => "2",
            Style::Good => "32",
            Style::Warning => "33",
            Style::Bad => "1;31",
        };
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }
}

/// Where results and messages go.
pub struct Console {
    /// Results. Buffered: [`finish`](Self::finish) flushes.
    pub out: Box<dyn Write>,
    /// Messages.
    pub err: Box<dyn Write>,
    /// Whether results go to a terminal.
    pub out_is_terminal: bool,
    /// Colours of `out`.
    pub paint_out: Paint,
    /// Colours of `err`.
    pub paint_err: Paint,
    /// Whether a progress bar may be drawn on standard error.
    pub shows_progress: bool,
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console")
            .field("paint_out", &self.paint_out)
            .field("paint_err", &self.paint_err)
            .field("shows_progress", &self.shows_progress)
            .finish_non_exhaustive()
    }
}

impl Console {
    /// The streams of this process.
    pub fn new(color: ColorChoice, quiet: bool) -> Self {
        let (stdout, stderr) = (io::stdout(), io::stderr());
        Self {
            out_is_terminal: stdout.is_terminal(),
            paint_out: Paint(color.applies(stdout.is_terminal())),
            paint_err: Paint(color.applies(stderr.is_terminal())),
            shows_progress: !quiet && stderr.is_terminal(),
            // Standard output of Rust flushes at every line; lists have millions.
            out: Box::new(BufWriter::with_capacity(64 << 10, stdout)),
            err: Box::new(stderr),
        }
    }

    /// One sentence on standard error, after the name of the program. Nothing in it reaches a terminal as a control
    /// character.
    pub fn say(&mut self, style: Style, sentence: impl fmt::Display) {
        let name = self.paint_err.style(style, "redrive:");
        // With standard error gone there is nobody left to tell.
        let _ = writeln!(self.err, "{name} {}", sanitize(&sentence.to_string()));
    }

    /// Ends the output of a command. A reader that has closed its end of the pipe has seen enough: that is no
    /// failure.
    ///
    /// # Errors
    /// [`Failure::Output`] for what could not be written otherwise.
    pub fn finish(&mut self, written: io::Result<()>, status: Status) -> Result<Status, Failure> {
        match written.and_then(|()| self.out.flush()) {
            Ok(()) => Ok(status),
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(status),
            Err(e) => Err(Failure::stdout(e)),
        }
    }
}

/// A word that a shell takes as this path, or `…` for one that cannot be shown on a terminal as it is.
pub fn shell_word(path: &OsStr) -> String {
    let Some(text) = path.to_str().filter(|text| sanitize(text) == *text) else { return "…".to_owned() };
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+=:,@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_a_shell() {
        let word = |text: &str| shell_word(OsStr::new(text));
        assert_eq!(word("/data/kafka-logs_1"), "/data/kafka-logs_1");
        assert_eq!(word("my logs; rm"), "'my logs; rm'");
        assert_eq!(word("it's"), r"'it'\''s'");
        assert_eq!(word(""), "''");
        assert_eq!(word("a\nb"), "…");
    }

    #[test]
    fn colour_is_guessed_from_any_command_line() {
        let guess = |args: &[&str]| ColorChoice::guess(&args.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(guess(&["redrive", "--bad"]), ColorChoice::Auto);
        assert_eq!(guess(&["redrive", "--color", "never"]), ColorChoice::Never);
        assert_eq!(guess(&["redrive", "--color=always", "--bad"]), ColorChoice::Always);
        assert_eq!(guess(&["redrive", "--color"]), ColorChoice::Auto);
    }

    #[test]
    fn colours_come_only_when_asked_for() {
        assert_eq!(Paint(false).style(Style::Bad, "x"), "x");
        assert_eq!(Paint(true).style(Style::Bold, "x"), "\x1b[1mx\x1b[0m");
        assert!(ColorChoice::Always.applies(false));
        assert!(!ColorChoice::Never.applies(true));
        assert!(!ColorChoice::Auto.applies(false));
    }
}
