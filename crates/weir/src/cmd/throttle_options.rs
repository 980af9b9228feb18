//! The throttle's parameters as command-line options, one for each row of the table `PARAMS` in weir-core.

use clap::builder::{PossibleValuesParser, TypedValueParser, ValueParser};
use clap::{Arg, ArgGroup, ArgMatches, Args, Command, FromArgMatches};
use weir_core::throttle::{PARAMS, Param, ParamKind, Params};
use weir_settings::units::Rate;

/// The parameters that were given.
#[derive(Debug, Clone, Default)]
pub(crate) struct ThrottleOptions {
    given: Vec<(&'static Param, Given)>,
}

/// The value of one of them.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Given {
    Rate(Rate),
    Number(u32),
    /// The second of the two words, rather than the first.
    Word(bool),
}

impl ThrottleOptions {
    /// The options that were given, in the order of the table.
    pub(crate) fn given(&self) -> &[(&'static Param, Given)] {
        &self.given
    }

    /// `params`, with the options that were given put over them.
    pub(crate) fn over(&self, mut params: Params) -> Params {
        for (param, given) in &self.given {
            param.set(&mut params, given.value());
        }
        params
    }

    /// Whether this parameter was given.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.given.iter().any(|(param, _)| param.name == name)
    }
}

impl Given {
    fn value(self) -> u64 {
        match self {
            Given::Rate(rate) => u64::try_from(rate.period().as_nanos()).unwrap_or(u64::MAX),
            Given::Number(number) => number.into(),
            Given::Word(second) => second.into(),
        }
    }
}

/// The group of all these options.
pub(crate) const GROUP: &str = "throttle_options";

impl Args for ThrottleOptions {
    fn augment_args(command: Command) -> Command {
        let group = ArgGroup::new(GROUP).multiple(true).args(PARAMS.iter().map(|param| param.name));
        PARAMS.iter().fold(command, |command, param| command.arg(option(param))).group(group)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ThrottleOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ThrottleOptions, clap::Error> {
        let given = PARAMS.iter().filter_map(|param| Some((param, *matches.get_one::<Given>(param.name)?)));
        Ok(ThrottleOptions { given: given.collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn option(param: &'static Param) -> Arg {
    let (unit, parser) = match param.kind {
        ParamKind::Rate => ("RATE", ValueParser::new(|text: &str| text.parse::<Rate>().map(Given::Rate))),
        ParamKind::Count(_) | ParamKind::Cap => ("N", ValueParser::new(clap::value_parser!(u32).map(Given::Number))),
        ParamKind::Choice([first, second]) => {
            let words = PossibleValuesParser::new([first, second]);
            ("RULE", ValueParser::new(words.map(move |word| Given::Word(word == second))))
        }
    };
    let [shown, aliases @ ..] = param.options else { return Arg::new(param.name) };
    Arg::new(param.name)
        .long(*shown)
        .visible_aliases(aliases.iter().copied())
        .value_name(unit)
        .value_parser(parser)
        .help(param.about)
}
