//! The macro [`settings!`], which declares a struct whose fields are settings.

/// Declares settings. There are two forms.
///
/// A struct, each field of which is a setting. Its doc comment is the text of the section, a field's doc comment is the text of the key.
/// The struct gets `Default` from the declared defaults.
///
/// ```
/// use std::time::Duration;
/// use weir_settings::{Section, settings};
///
/// settings! {
///     /// Mail scanning: feeds by message size and load
///     #[section("scan")]
///     #[check(ScanSettings::check)]
///     pub struct ScanSettings {
///         /// Whether mail is scanned
///         pub enabled: bool = flag(false),
///         /// Attempts after which a message that cannot be scanned is quarantined
///         pub attempts: u32 = number(5, 1..=100),
///         /// How long mail waits for scanners that fail for everybody
///         pub retry_for: Duration = duration("4h", "1m"..="30d"),
///         /// The largest message
///         pub bytes_max as "message_size": u64 = size("25MiB", "1KiB"..="4GiB"),
///     }
/// }
///
/// impl ScanSettings {
///     /// Rules between keys; optional.
///     fn check(&self, section: &mut Section<'_, '_>) {
///         if self.enabled && self.attempts == 1 {
///             section.blame("attempts", "one attempt is too few".into(), "allow more");
///         }
///     }
/// }
///
/// assert_eq!(ScanSettings::default().retry_for, Duration::from_secs(4 * 3600));
/// ```
///
/// Without `#[section]` it is a part of other sections: a field `queue: QueueSettings = part()` reads its keys in that place. What stands
/// to the right of `=` is any expression of a type that implements [`Declare`](crate::Declare); the usual ones are in
/// [`kinds`](crate::kinds) and need no import.
///
/// The second form reads keys into a struct of a crate that does not know this one, such as `weir-core`:
///
/// ```
/// use weir_settings::settings;
/// # pub struct Timers { pub beat: std::time::Duration, pub missed: u32 }
///
/// settings! {
///     /// The timers of the election
///     fn timers() -> Timers {
///         /// How often the leader says that it is alive
///         beat = duration("1s", "20ms"..="1m"),
///         /// So many missing beats start an election
///         missed as "missed_beats" = number(3, 1..=100),
///     }
/// }
/// ```
///
/// Such a function is a part as well: `timers: Timers = part_by(timers)`.
#[macro_export]
macro_rules! settings {
    (
        $(#[doc = $about:literal])+
        $(#[section($section:literal)])?
        $(#[check($check:expr)])?
        $(#[derive($($derive:path),+ $(,)?)])?
        $vis:vis struct $Name:ident {
            $(
                $(#[doc = $text:literal])*
                $field_vis:vis $field:ident $(as $key:literal)? : $ty:ty = $declared:expr
            ),* $(,)?
        }
    ) => {
        $(#[doc = $about])+
        #[allow(rustdoc::all, missing_docs)]
        #[derive(Debug, Clone)]
        $(#[derive($($derive),+)])?
        $vis struct $Name {
            $( $(#[doc = $text])* $field_vis $field: $ty, )*
        }

        impl $crate::Group for $Name {
            const ABOUT: &'static [&'static str] = &[$($about),+];

            fn read(section: &mut $crate::Section<'_, '_>) -> Self {
                #[allow(unused_imports)]
                use $crate::kinds::*;
                let read = Self {
                    $(
                        $field: $crate::Declare::<$ty>::read(
                            $declared,
                            section,
                            $crate::settings!(@key $field $($key)?),
                            &[$($text),*],
                        ),
                    )*
                };
                $( ($check)(&read, section); )?
                read
            }
        }

        impl Default for $Name {
            fn default() -> Self {
                $crate::defaults()
            }
        }

        $(
            impl $crate::Settings for $Name {
                const SECTION: &'static str = $section;
            }
        )?
    };
    (
        $(#[doc = $about:literal])*
        $(#[check($check:expr)])?
        $vis:vis fn $name:ident() -> $($Name:ident)::+ {
            $(
                $(#[doc = $text:literal])*
                $field:ident $(as $key:literal)? = $declared:expr
            ),* $(,)?
            $(; ..$rest:expr)?
        }
    ) => {
        $(#[doc = $about])*
        $vis fn $name(section: &mut $crate::Section<'_, '_>) -> $($Name)::+ {
            #[allow(unused_imports)]
            use $crate::kinds::*;
            let read = $($Name)::+ {
                $(
                    $field: $crate::Declare::read(
                        $declared,
                        section,
                        $crate::settings!(@key $field $($key)?),
                        &[$($text),*],
                    ),
                )*
                $(..$rest)?
            };
            $( ($check)(&read, section); )?
            read
        }
    };
    (@key $field:ident) => { stringify!($field) };
    (@key $field:ident $key:literal) => { $key };
}
