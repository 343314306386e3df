//! `redrive completions` and `redrive man`: made from the definition of the command line itself.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::cli::Cli;
use crate::console::Console;
use crate::failure::{Failure, Status};

/// Options of `redrive completions`.
#[derive(Clone, Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    pub shell: Shell,
}

/// Options of `redrive man`.
#[derive(Clone, Debug, clap::Args)]
pub struct ManArgs {
    /// Page of this command instead of the one of redrive itself
    #[arg(value_name = "COMMAND", conflicts_with = "out")]
    pub command: Option<String>,

    /// Write the pages of all commands as redrive.1, redrive-list.1, … into this folder, which is made if need be
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Prints the completions of a shell.
///
/// # Errors
/// [`Failure::Output`].
pub fn completions(args: &CompletionsArgs, console: &mut Console) -> Result<Status, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "redrive", &mut script);
    let written = console.out.write_all(&script);
    console.finish(written, Status::Fine)
}

/// Prints one page, or writes all of them.
///
/// # Errors
/// [`Failure::Usage`] for a command that does not exist, [`Failure::Output`].
pub fn man(args: &ManArgs, console: &mut Console) -> Result<Status, Failure> {
    let pages = pages();
    if let Some(folder) = &args.out {
        write_pages(folder, &pages)?;
        return Ok(Status::Fine);
    }
    let name = match &args.command {
        Some(command) => format!("redrive-{command}"),
        None => "redrive".to_owned(),
    };
    let Some((_, page)) = pages.iter().find(|(page, _)| *page == name) else {
        return Err(Failure::Usage(format!(
            "there is no command {:?}",
            args.command.as_deref().unwrap_or_default()
        )));
    };
    let mut text = Vec::new();
    let written = render(page, &mut text).and_then(|()| console.out.write_all(&text));
    console.finish(written, Status::Fine)
}

fn write_pages(folder: &Path, pages: &[(String, clap::Command)]) -> Result<(), Failure> {
    let failed = |path: &Path, source: io::Error| Failure::Output { to: path.display().to_string(), source };
    fs::create_dir_all(folder).map_err(|e| failed(folder, e))?;
    for (name, page) in pages {
        let path = folder.join(format!("{name}.1"));
        let mut text = Vec::new();
        render(page, &mut text).and_then(|()| fs::write(&path, text)).map_err(|e| failed(&path, e))?;
    }
    Ok(())
}

fn render(page: &clap::Command, text: &mut Vec<u8>) -> io::Result<()> {
    Man::new(page.clone()).source(concat!("redrive ", env!("CARGO_PKG_VERSION"))).render(text)
}

/// The commands that have a page, by the page's name.
fn pages() -> Vec<(String, clap::Command)> {
    let mut root = Cli::command().disable_help_subcommand(true);
    // Hands the options of all commands down to each.
    root.build();
    let mut pages = vec![("redrive".to_owned(), root.clone())];
    pages.extend(root.get_subcommands().map(|command| {
        let name = format!("redrive-{}", command.get_name());
        let page = command.clone().display_name(name.clone());
        (name, page)
    }));
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_that_names_its_options() {
        let pages = pages();
        let names: Vec<_> = pages.iter().map(|(name, _)| name.as_str()).collect();
        for name in ["redrive", "redrive-replay", "redrive-list", "redrive-describe", "redrive-dump"] {
            assert!(names.contains(&name), "{names:?}");
        }
        let mut text = Vec::new();
        let (_, list) = pages.iter().find(|(name, _)| name == "redrive-list").unwrap();
        render(list, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        for option in ["older\\-than", "topic\\-partition", "color", "quiet"] {
            assert!(text.contains(option), "{option}");
        }
        assert!(text.contains("redrive\\-list") && text.contains("redrive 0."));
    }
}
