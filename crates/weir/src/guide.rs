//! Tests that this program accepts every `weir …` command in README and guide: verbs and flags exist, and their values are valid.
//!
//! Blocks of commands are also run, as far as that is possible (tests/guide_commands.rs). A command in the middle of a sentence may leave
//! out arguments; nothing else may be wrong.

use clap::Parser;
use clap::error::ErrorKind;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_command_that_the_guide_shows_is_taken() {
    let (mut wrong, mut commands, mut mentions) = (Vec::new(), 0, 0);
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let mut note = |command: &str, error: clap::Error| {
            let said = error.to_string();
            wrong.push(format!("{}: {command}\n    {}", page.display(), said.lines().next().unwrap_or_default()));
        };
        for words in blocks(&text).iter().flat_map(|block| weir_commands(block)) {
            commands += 1;
            if let Err(error) = parsed(&words) {
                note(&words.join(" "), error);
            }
        }
        for mention in mentioned(&text) {
            mentions += 1;
            if let Err(error) = parsed(&mention)
                && !leaves_out(error.kind())
            {
                note(&mention.join(" "), error);
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(commands > 60 && mentions > 200, "{commands} commands and {mentions} mentions were found");
}

/// Parses a command line as `main` does. A word in capitals stands for a value, which may have to be a number.
fn parsed(words: &[String]) -> Result<(), clap::Error> {
    let with = |number: &str| {
        let value = |word: &String| match is_placeholder(word) {
            true => number.to_owned(),
            false => word.clone(),
        };
        crate::Cli::try_parse_from(words.iter().map(value)).map(drop)
    };
    // The word may stand for a number, a name or "all", so each is tried.
    ["X", "1", "all"].iter().find_map(|value| with(value).ok()).map_or_else(|| with("1"), Ok)
}

fn is_placeholder(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|letter| letter.is_ascii_uppercase() || letter == '.' || letter == '_')
}

fn leaves_out(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::MissingRequiredArgument
            | ErrorKind::MissingSubcommand
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            | ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
    )
}

const RELEASES: [&str; 2] = ["release-0.1.0.md", "release-0.2.0.md"];

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = ["docs", "docs/algorithms"].map(|folder| root.join(folder));
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()));
    let pages = files.filter(|path| path.extension().is_some_and(|kind| kind == "md"));
    // Those pages are about one version of the program each, which may be an older one.
    let pages = pages.filter(|path| !RELEASES.iter().any(|page| path.ends_with(page)));
    pages.chain([root.join("README.md"), root.join("CONTRIBUTING.md")]).collect()
}

/// The blocks of shell commands.
fn blocks(text: &str) -> Vec<String> {
    let fenced = text.split("```sh\n").skip(1);
    fenced.filter_map(|rest| rest.split("```").next()).map(|block| block.replace("\\\n", " ")).collect()
}

/// The commands of a block that begin with `weir`, as words.
fn weir_commands(block: &str) -> Vec<Vec<String>> {
    let all = block.lines().flat_map(simple_commands);
    all.filter(|words| words.first().is_some_and(|word| word == "weir")).collect()
}

/// The simple commands of a line: the parts between `&&`, `||`, `|`, `;` and `&`, as words without quotes, redirections and comments.
fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let (mut quote, mut into_file) = (None, false);
    for letter in line.chars().chain(['\n']) {
        match (quote, letter) {
            (Some(open), _) if open == letter => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(letter),
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, ' ' | '\t' | '\n' | '|' | '&' | ';' | '>' | '<') => {
                if let Some(ended) = word.take()
                    && !std::mem::take(&mut into_file)
                {
                    words.push(ended);
                }
                into_file |= matches!(letter, '>' | '<');
                if matches!(letter, '|' | '&' | ';') {
                    commands.push(std::mem::take(&mut words));
                }
            }
            (None, _) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    commands.push(words);
    commands.retain(|words| !words.is_empty());
    commands
}

/// Commands in the middle of a sentence. `weir lab list|report` stands for two of them; arguments in brackets are optional.
fn mentioned(text: &str) -> Vec<Vec<String>> {
    let prose: Vec<&str> = text.split("```").step_by(2).collect();
    let code = prose.iter().flat_map(|part| part.split('`').skip(1).step_by(2));
    let commands = code.filter(|code| code.starts_with("weir ") && !code.contains('\n'));
    commands.flat_map(|command| alternatives(&command.replace(['…', '[', ']'], ""))).collect()
}

fn alternatives(command: &str) -> Vec<Vec<String>> {
    let words = simple_commands(&command.replace('|', "\u{1}")).into_iter().next().unwrap_or_default();
    let mut all = vec![Vec::new()];
    for word in &words {
        let longer = |before: &Vec<String>| {
            word.split('\u{1}').map(|choice| [before.as_slice(), &[choice.to_owned()]].concat()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

#[test]
fn commands_are_found_as_a_shell_finds_them() {
    let words = |line: &str| simple_commands(line).iter().map(|words| words.join("_")).collect::<Vec<_>>();
    assert_eq!(words("weir find --subject 'a b' > x  # why"), ["weir_find_--subject_a b"]);
    assert_eq!(words("zcat *.gz | weir replay - && weir top &"), ["zcat_*.gz", "weir_replay_-", "weir_top"]);
    assert_eq!(weir_commands("echo weir up\nweir up #1\n").len(), 1);
    assert_eq!(mentioned("`weir lab list|why` and ```\nweir x\n```").len(), 2);
    assert!(parsed(&["weir", "lab", "nonsense"].map(str::to_owned)).is_err());
    assert!(parsed(&["weir", "status", "--nonsense"].map(str::to_owned)).is_err());
}
