//! Where message sizes come from: the paper's dual-Gaussian example, a stand-in for its unpublished
//! measurements, a table, or the user's own list.

use crate::input::InputError;
use crate::rng::Rng;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use weir_core::feeds::{SizeTable, TABLE_POINTS};

/// A file may hold so many sizes: enough for years of mail, and a bound on memory.
pub const SIZES_MAX: usize = 20_000_000;

/// How many sizes the paper measured.
const MEASURED: usize = 100_000;
/// The table that searches use: fine enough that a limit falls on a point, whatever the sizes.
const FINE_POINTS: usize = 2001;

/// A source of sizes. Clones share it.
#[derive(Debug, Clone)]
pub struct Sizes {
    source: Arc<Source>,
    /// The paper's table and the fine one, made when first asked for.
    tables: Arc<[OnceLock<SizeTable>; 2]>,
}

#[derive(Debug)]
enum Source {
    DualGaussian,
    HeavyTailed,
    /// Mean.
    Exponential(f64),
    /// The share of large messages, and the mean sizes of small and large ones; each spreads by a fifth.
    TwoKinds(f64, f64, f64),
    Sample(Vec<u64>),
    Table(SizeTable),
}

impl Sizes {
    /// The paper's artificial example: 90 % N(2000, 400²), 10 % N(50000, 10000²), above zero.
    pub fn dual_gaussian() -> Sizes {
        Sizes::of(Source::DualGaussian)
    }

    /// A stand-in for the paper's measured sizes, which were not published: log-normal body (median 2.7 kB) up to
    /// 10 kB, and above that a Pareto tail (α = 1, one message in eight) cut at 2 MB. Its shape was chosen so that
    /// the default column of the paper's Table 2 comes out near.
    pub fn heavy_tailed() -> Sizes {
        Sizes::of(Source::HeavyTailed)
    }

    /// A light tail: exponential with this mean.
    pub fn exponential(mean: f64) -> Sizes {
        Sizes::of(Source::Exponential(mean))
    }

    /// Small messages, and a share of large ones; both Gaussian, with a deviation of a fifth of their mean.
    pub fn two_kinds(large: f64, small_mean: f64, large_mean: f64) -> Sizes {
        Sizes::of(Source::TwoKinds(large, small_mean, large_mean))
    }

    /// Drawn by inverse interpolation of a table, as the paper drew them.
    pub fn from_table(table: SizeTable) -> Sizes {
        Sizes::of(Source::Table(table))
    }

    /// Reads sizes separated by white space; each is then equally likely.
    pub fn read(path: &Path) -> Result<Sizes, InputError> {
        let file = File::open(path).map_err(|e| InputError::unreadable(path, &e))?;
        let sizes = parse(BufReader::new(file), path)?;
        Ok(Sizes::of(Source::Sample(sizes)))
    }

    fn of(source: Source) -> Sizes {
        Sizes { source: Arc::new(source), tables: Arc::default() }
    }

    /// One size, at least 1.
    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        match &*self.source {
            Source::DualGaussian => dual_gaussian(rng),
            Source::HeavyTailed => heavy_tailed(rng),
            Source::Exponential(mean) => (rng.exponential(*mean).round() as u64).max(1),
            Source::TwoKinds(large, small_mean, large_mean) => {
                let mean = if rng.chance(*large) { *large_mean } else { *small_mean };
                (rng.normal(mean, mean / 5.0).round() as i64).max(1) as u64
            }
            Source::Sample(sizes) => (*rng.pick(sizes)).max(1),
            Source::Table(table) => (table.draw(rng.unit()).round() as u64).max(1),
        }
    }

    /// What to call it.
    pub fn name(&self) -> &'static str {
        match *self.source {
            Source::DualGaussian => "dual-gaussian",
            Source::HeavyTailed => "heavy-tailed stand-in",
            Source::Exponential(_) => "exponential",
            Source::TwoKinds(..) => "two kinds",
            Source::Sample(_) => "sizes from a file",
            Source::Table(_) => "size table",
        }
    }

    /// The paper's table of 101 points.
    pub fn table(&self) -> &SizeTable {
        self.tables[0].get_or_init(|| self.table_of(TABLE_POINTS))
    }

    /// The table that the paper would have had: of the list itself, or of 100 000 sizes drawn from the formula.
    pub fn measured_table(&self, seed: u64) -> SizeTable {
        let mut rng = Rng::new(seed);
        let mut drawn = || (0..MEASURED).map(|_| self.draw(&mut rng)).collect::<Vec<u64>>();
        match *self.source {
            Source::Sample(_) | Source::Table(_) => self.table().clone(),
            Source::DualGaussian | Source::HeavyTailed | Source::Exponential(_) | Source::TwoKinds(..) => {
                SizeTable::new(&drawn()).expect("a source of sizes is never empty")
            }
        }
    }

    /// A finer table, for searching.
    pub fn fine_table(&self) -> &SizeTable {
        self.tables[1].get_or_init(|| self.table_of(FINE_POINTS))
    }

    /// The size that this share of messages does not exceed.
    pub fn quantile(&self, share: f64) -> u64 {
        self.fine_table().draw(share) as u64
    }

    fn table_of(&self, points: usize) -> SizeTable {
        let table = match &*self.source {
            Source::Sample(sizes) => SizeTable::with_points(sizes, points),
            Source::Table(table) => Some(table.clone()),
            Source::DualGaussian => SizeTable::with_points(&spread(&dual_gaussian_parts()), points),
            Source::HeavyTailed => SizeTable::with_points(&spread(&heavy_tailed_parts()), points),
            Source::Exponential(mean) => SizeTable::with_points(&spread(&exponential_parts(*mean)), points),
            Source::TwoKinds(large, small_mean, large_mean) => {
                SizeTable::with_points(&spread(&two_kinds_parts(*large, *small_mean, *large_mean)), points)
            }
        };
        table.expect("a source of sizes is never empty")
    }
}

fn parse(mut input: impl BufRead, path: &Path) -> Result<Vec<u64>, InputError> {
    let mut sizes = Vec::new();
    let mut token = Vec::new();
    let mut line = 1;
    loop {
        let chunk = input.fill_buf().map_err(|e| InputError::unreadable(path, &e))?;
        if chunk.is_empty() {
            break;
        }
        for byte in chunk {
            if byte.is_ascii_whitespace() {
                take(&mut token, &mut sizes, path, line)?;
                line += usize::from(*byte == b'\n');
            } else {
                token.push(*byte);
            }
            // No size has so many digits: do not read the rest of such a file first.
            if token.len() > 24 {
                take(&mut token, &mut sizes, path, line)?;
            }
        }
        let used = chunk.len();
        input.consume(used);
    }
    take(&mut token, &mut sizes, path, line)?;
    if sizes.is_empty() {
        let hint = "write sizes in bytes, one a line or separated by blanks";
        return Err(InputError::new(path.display().to_string(), "there is no size in it", hint));
    }
    Ok(sizes)
}

/// Ends a word of the file: it is a size, or the file is refused.
fn take(token: &mut Vec<u8>, sizes: &mut Vec<u64>, path: &Path, line: usize) -> Result<(), InputError> {
    if token.is_empty() {
        return Ok(());
    }
    let place = || format!("{}:{line}", path.display());
    let text = String::from_utf8_lossy(token).into_owned();
    let size = text.parse::<u64>().ok().filter(|size| *size <= 1 << 53).ok_or_else(|| {
        let shown: String = text.chars().take(24).collect();
        InputError::new(place(), format!("{shown:?} is not a size"), "write whole bytes, such as 48213")
    })?;
    if sizes.len() >= SIZES_MAX {
        let hint = "take a sample of them; a hundred thousand are plenty";
        return Err(InputError::new(place(), format!("there are more than {SIZES_MAX} sizes"), hint));
    }
    sizes.push(size);
    token.clear();
    Ok(())
}

const GAUSSIANS: [(f64, f64, f64); 2] = [(0.9, 2000.0, 400.0), (0.1, 50_000.0, 10_000.0)];

fn dual_gaussian(rng: &mut Rng) -> u64 {
    let (_, mean, deviation) = GAUSSIANS[usize::from(!rng.chance(GAUSSIANS[0].0))];
    loop {
        let size = rng.normal(mean, deviation).round();
        if size >= 1.0 {
            return size as u64;
        }
    }
}

fn dual_gaussian_parts() -> [MixturePart; 2] {
    GAUSSIANS.map(|(share, mean, deviation)| {
        let density = move |size: f64| (-0.5 * ((size - mean) / deviation).powi(2)).exp();
        MixturePart { share, sizes: 1..=(mean + 6.0 * deviation) as u64, density: Box::new(density) }
    })
}

const BODY_MEDIAN_LN: f64 = 7.896;
const BODY_DEVIATION: f64 = 1.167;
const TAIL_SHARE: f64 = 0.125;
const TAIL_FROM: f64 = 10_000.0;
const TAIL_TO: f64 = 2_000_000.0;

fn heavy_tailed(rng: &mut Rng) -> u64 {
    if rng.chance(TAIL_SHARE) {
        // Pareto with α = 1, cut: P(S > s) falls from 1 at the start to 0 at the end.
        let kept = 1.0 - rng.unit() * (1.0 - TAIL_FROM / TAIL_TO);
        return (TAIL_FROM / kept) as u64;
    }
    loop {
        let size = rng.normal(BODY_MEDIAN_LN, BODY_DEVIATION).exp();
        if (1.0..=TAIL_FROM).contains(&size) {
            return size as u64;
        }
    }
}

fn heavy_tailed_parts() -> [MixturePart; 2] {
    let body = |size: f64| (-0.5 * ((size.ln() - BODY_MEDIAN_LN) / BODY_DEVIATION).powi(2)).exp() / size;
    let tail = |size: f64| 1.0 / (size * size);
    [
        MixturePart { share: 1.0 - TAIL_SHARE, sizes: 1..=TAIL_FROM as u64, density: Box::new(body) },
        MixturePart { share: TAIL_SHARE, sizes: TAIL_FROM as u64..=TAIL_TO as u64, density: Box::new(tail) },
    ]
}

fn exponential_parts(mean: f64) -> [MixturePart; 1] {
    let density = move |size: f64| (-size / mean).exp();
    [MixturePart { share: 1.0, sizes: 1..=(mean * 14.0) as u64, density: Box::new(density) }]
}

fn two_kinds_parts(large: f64, small_mean: f64, large_mean: f64) -> [MixturePart; 2] {
    [(1.0 - large, small_mean), (large, large_mean)].map(|(share, mean)| {
        let density = move |size: f64| (-0.5 * ((size - mean) / (mean / 5.0)).powi(2)).exp();
        MixturePart { share, sizes: 1..=(mean * 2.2) as u64, density: Box::new(density) }
    })
}

/// One part of a mixture: its share of all messages, and how they are distributed (up to a factor).
struct MixturePart {
    share: f64,
    sizes: RangeInclusive<u64>,
    density: Box<dyn Fn(f64) -> f64>,
}

/// How many sizes stand for a distribution in its table.
const SPREAD: f64 = 1_000_000.0;

/// Sizes distributed as the parts say, without chance: near saturation an error of one percent in a feed's share is
/// one of ten in its wait, so a drawn sample would not do.
fn spread(parts: &[MixturePart]) -> Vec<u64> {
    let mut sizes = Vec::new();
    for MixturePart { share, sizes: range, density } in parts {
        let whole: f64 = range.clone().map(|size| density(size as f64)).sum();
        let mut due = 0.0;
        for size in range.clone() {
            due += SPREAD * share * density(size as f64) / whole;
            sizes.extend(std::iter::repeat_n(size, due as usize));
            due -= due.floor();
        }
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<u64>, InputError> {
        parse(text.as_bytes(), Path::new("sizes.txt"))
    }

    #[test]
    fn sizes_come_one_a_line_or_separated_by_blanks() {
        assert_eq!(parsed("10\n20 30\t40\r\n\n 0").unwrap(), [10, 20, 30, 40, 0]);
    }

    #[test]
    fn what_is_no_size_is_refused_with_its_line() {
        for (text, place, problem) in [
            ("1\n2\n3x\n", "sizes.txt:3", "\"3x\" is not a size"),
            ("-5", "sizes.txt:1", "is not a size"),
            ("1\n99999999999999999999999", "sizes.txt:2", "is not a size"),
            (" \n \n", "sizes.txt", "no size"),
        ] {
            let error = parsed(text).unwrap_err();
            assert_eq!(error.place, place);
            assert!(error.problem.contains(problem), "{error}");
        }
        let endless = std::io::repeat(b'x');
        let error = parse(BufReader::new(endless), Path::new("zero")).unwrap_err();
        assert_eq!(error.place, "zero:1");
    }

    #[test]
    fn the_distributions_are_what_they_say() {
        let mut rng = Rng::new(3);
        let n = 200_000;
        let gaussian = Sizes::dual_gaussian();
        let sizes: Vec<f64> = (0..n).map(|_| gaussian.draw(&mut rng) as f64).collect();
        assert!((sizes.iter().sum::<f64>() / f64::from(n) - 6800.0).abs() < 100.0);
        assert!((sizes.iter().filter(|s| **s > 10_000.0).count() as f64 / f64::from(n) - 0.1).abs() < 0.005);
        let tailed = Sizes::heavy_tailed();
        let table = tailed.table();
        let shares = [2000.0, 10_000.0, 50_000.0, 250_000.0].map(|s| table.share_below(s));
        for (share, about) in shares.iter().zip([0.40, 0.875, 0.975, 0.9956]) {
            assert!((share - about).abs() < 0.02, "{shares:?}");
        }
        assert!(table.largest() <= 2e6);
        for sizes in [gaussian, tailed, Sizes::exponential(7000.0), Sizes::two_kinds(0.3, 2000.0, 65_000.0)] {
            let table = sizes.fine_table();
            let drawn: Vec<f64> = (0..n).map(|_| sizes.draw(&mut rng) as f64).collect();
            let mean = drawn.iter().sum::<f64>() / f64::from(n);
            assert!((table.between(0.0, 1e9).mean / mean - 1.0).abs() < 0.03, "the table and the draws differ");
            for limit in [1000.0, 2000.0, 10_000.0, 50_000.0, 250_000.0] {
                let share = drawn.iter().filter(|s| **s <= limit).count() as f64 / f64::from(n);
                assert!((table.share_below(limit) - share).abs() < 0.005, "{} {limit}", sizes.name());
            }
        }
    }
}
