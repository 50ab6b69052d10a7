//! Finds secrets in a stream and replaces them.
//!
//! ```text
//! piece ──► held + piece ──┬── decided: not the start of any form ──► forwarded
//!                          ├── a complete form ──► as many `*`
//!                          └── may become a form ──► held back, at most the longest form less one byte
//! ```
//!
//! The decision about a byte depends only on that byte and those after it, never on how the stream was split, so
//! every split gives the same result. A replacement has the length of the form, so lengths given elsewhere
//! (`Content-Length`, WebSocket and gRPC frames) stay valid. Bytes held back are dropped with the [`Scrubber`]; only
//! [`Scrubber::end`], called at the regular end of a stream, returns them.
//!
//! A protocol whose messages are answered one by one would deadlock if the last bytes of a message looked like the
//! start of a secret and were held back. Therefore up to [`SHOWN_MAX`] such bytes are released at the end of a
//! message; they still count as the start of a form.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use zeroize::{Zeroize as _, Zeroizing};

use super::secret_forms::{self, Form};

/// How many bytes of a form's start are released at the end of a message.
const SHOWN_MAX: usize = 3;

const BLOT: u8 = b'*';

/// Possible search strides; the longest that the forms permit is used. With a stride above the first one, pairs near
/// a start would match too often.
const STRIDES: [usize; 4] = [15, 7, 5, 1];

/// The forms to search for. Cloning is cheap.
#[derive(Clone)]
pub(super) struct Forms {
    inner: Arc<Inner>,
}

struct Inner {
    /// Sorted, without duplicates.
    forms: Vec<Form>,
    /// The owners of each form: indexes into the list of secrets that the forms were made from.
    owners: Vec<Owners>,
    /// The pairs of bytes with which the forms begin.
    begins: Pairs,
    /// The pairs of bytes near the start of the forms, `stride` of each.
    near: Pairs,
    /// The largest stride that cannot miss a form: one less than the length of the shortest form.
    stride: usize,
    /// Whether the comparison ignores case.
    folded: bool,
    longest: usize,
    /// The same forms compared without case, created on first use.
    any_case: OnceLock<Forms>,
}

impl std::fmt::Debug for Forms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// The secrets that one form belongs to. Two secrets with the same value share all their forms.
pub(super) type Owners = Arc<[u16]>;

/// How often forms were found, by the secrets to which they belong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hits(BTreeMap<Owners, u64>);

impl Hits {
    fn add(&mut self, owners: &Owners, count: u64) {
        *self.0.entry(Arc::clone(owners)).or_default() += count;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(owners, count)| self.add(owners, *count));
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Owners, u64)> {
        self.0.iter().map(|(owners, count)| (owners, *count))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The result of matching at one position of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Match {
    Nothing,
    /// The form with this index.
    Form(usize),
    /// More bytes are needed to decide.
    Undecided,
}

impl Forms {
    /// The forms of `secrets`, case-sensitive.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn exact<'a>(secrets: impl IntoIterator<Item = &'a [u8]>) -> Self {
        Self::new(secrets.into_iter().flat_map(secret_forms::of).map(|form| (form, 0)).collect(), false)
    }

    /// The case-sensitive forms of several secrets. Each secret has one or more values; its position is its owner
    /// index.
    pub(super) fn of_each(secrets: &[Vec<Zeroizing<Vec<u8>>>]) -> Self {
        let mut owned = Vec::new();
        for (owner, values) in (0..=u16::MAX).zip(secrets) {
            let forms = values.iter().flat_map(|value| secret_forms::of(value));
            owned.extend(forms.map(|form| (form, owner)));
        }
        Self::new(owned, false)
    }

    /// The forms of `secrets`, in any case.
    pub(super) fn any_case<'a>(secrets: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut forms: Vec<(Form, u16)> =
            secrets.into_iter().flat_map(secret_forms::of).map(|form| (form, 0)).collect();
        forms.iter_mut().for_each(|(form, _)| form.make_ascii_lowercase());
        Self::new(forms, true)
    }

    fn new(mut owned: Vec<(Form, u16)>, folded: bool) -> Self {
        owned.sort_unstable_by(|a, b| (&a.0[..], a.1).cmp(&(&b.0[..], b.1)));
        owned.dedup();
        let (mut forms, mut owners) = (Vec::<Form>::new(), Vec::<Vec<u16>>::new());
        for (form, owner) in owned {
            match owners.last_mut().filter(|_| forms.last() == Some(&form)) {
                Some(same) => same.push(owner),
                None => {
                    forms.push(form);
                    owners.push(vec![owner]);
                }
            }
        }
        let owners = owners.into_iter().map(Owners::from).collect();
        let stride = forms.iter().map(|form| form.len()).min().unwrap_or(0).saturating_sub(1);
        let stride = STRIDES.into_iter().find(|allowed| *allowed <= stride).unwrap_or(1);
        let (mut begins, mut near) = (Pairs::none(), Pairs::none());
        for form in &forms {
            form.windows(2).take(1).for_each(|pair| begins.add(pair[0], pair[1]));
            form.windows(2).take(stride).for_each(|pair| near.add(pair[0], pair[1]));
        }
        let longest = forms.iter().map(|form| form.len()).max().unwrap_or(0);
        let any_case = OnceLock::new();
        Self { inner: Arc::new(Inner { forms, owners, begins, near, stride, folded, longest, any_case }) }
    }

    /// The same forms, compared without case.
    pub(super) fn folded(&self) -> &Self {
        self.inner.any_case.get_or_init(|| {
            let mut owned = Vec::new();
            for (form, owners) in self.inner.forms.iter().zip(&self.inner.owners) {
                let mut form = form.clone();
                form.make_ascii_lowercase();
                owned.extend(owners.iter().map(|owner| (form.clone(), *owner)));
            }
            Self::new(owned, true)
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.inner.forms.is_empty()
    }

    /// Whether `bytes`, a complete text, contains a form.
    pub(super) fn are_in(&self, bytes: &[u8]) -> bool {
        !self.is_empty() && (0..bytes.len()).any(|at| matches!(self.at(&bytes[at..], true), Match::Form(_)))
    }

    /// `bytes`, a complete text, with all forms replaced; `None` if it contains none.
    pub(super) fn blot(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.blot_counted(bytes, &mut Hits::default())
    }

    /// Like [`Self::blot`], and adds the forms found to `hits`.
    pub(super) fn blot_counted(&self, bytes: &[u8], hits: &mut Hits) -> Option<Vec<u8>> {
        if !self.are_in(bytes) {
            return None;
        }
        let mut scrubber = Scrubber::new(self.clone());
        let mut clean = scrubber.push(Bytes::copy_from_slice(bytes)).to_vec();
        clean.extend_from_slice(&scrubber.end());
        hits.merge(&scrubber.hits);
        (scrubber.found > 0).then_some(clean)
    }

    /// Matches at the front of `rest`. Match the end of the stream nothing is undecided.
    fn at(&self, rest: &[u8], ended: bool) -> Match {
        let fold = |b: u8| if self.inner.folded { b.to_ascii_lowercase() } else { b };
        let [first, behind @ ..] = rest else { return Match::Nothing };
        let first = fold(*first);
        let possible = match behind.first() {
            Some(second) => self.inner.begins.has(first, fold(*second)),
            None => true,
        };
        if !possible {
            return Match::Nothing;
        }
        let (mut longest, mut undecided, mut found) = (0, 0, 0);
        let from = self.inner.forms.partition_point(|form| form[0] < first);
        let forms = self.inner.forms[from..].iter().take_while(|form| form[0] == first);
        for (index, form) in (from..).zip(forms) {
            let common = form.len().min(rest.len());
            let same = form[..common].iter().zip(rest).all(|(own, given)| *own == fold(*given));
            match same {
                true if common == form.len() && common > longest => (longest, found) = (common, index),
                true if common == form.len() => {}
                true => undecided = undecided.max(form.len()),
                false => {}
            }
        }
        // A longer form that may still be completed takes precedence over a shorter one that matches.
        match (longest, undecided > longest && !ended) {
            (_, true) => Match::Undecided,
            (0, false) => Match::Nothing,
            (_, false) => Match::Form(found),
        }
    }

    /// Finds the first position with a match or an undecided start.
    fn find(&self, bytes: &[u8], from: usize, ended: bool) -> Option<(usize, Match)> {
        let look = |place: usize| match self.at(&bytes[place..], ended) {
            Match::Nothing => None,
            found @ (Match::Form(_) | Match::Undecided) => Some((place, found)),
        };
        // Any form that begins at one of `stride` consecutive positions has its bytes at and after the last of them,
        // and that pair is among the pairs near its start. So usually one lookup covers all of these positions.
        let stride = self.inner.stride;
        let skip = |from: usize| match (self.inner.folded, stride) {
            (false, 15) => self.inner.near.skip::<15>(bytes, from),
            (false, 7) => self.inner.near.skip::<7>(bytes, from),
            (false, 5) => self.inner.near.skip::<5>(bytes, from),
            (_, _) => from,
        };
        let mut from = skip(from);
        while let Some([first, second]) = bytes.get(from + stride - 1..=from + stride) {
            let (first, second) = match self.inner.folded {
                true => (first.to_ascii_lowercase(), second.to_ascii_lowercase()),
                false => (*first, *second),
            };
            if self.inner.near.has(first, second)
                && let Some(found) = (from..from + stride).find_map(look)
            {
                return Some(found);
            }
            from = skip(from + stride);
        }
        (from..bytes.len()).find_map(look)
    }
}

/// A set of pairs of bytes.
struct Pairs(Box<[u64; 1024]>);

impl Pairs {
    fn none() -> Self {
        Self(Box::new([0; 1024]))
    }

    fn add(&mut self, first: u8, second: u8) {
        let pair = usize::from(first) << 8 | usize::from(second);
        self.0[pair / 64] |= 1 << (pair % 64);
    }

    fn has(&self, first: u8, second: u8) -> bool {
        let pair = u16::from_be_bytes([first, second]);
        self.0[usize::from(pair >> 6)] >> (pair & 63) & 1 != 0
    }

    /// Advances from `from` in steps of `STRIDE` while the pair at the end of a step is not in the set. May stop
    /// early: it checks four steps at a time, which a processor can do in parallel.
    fn skip<const STRIDE: usize>(&self, bytes: &[u8], from: usize) -> usize {
        let mut from = from;
        while let Some(steps) = bytes.get(from..=from + 4 * STRIDE) {
            let at = |step: usize| self.has(steps[step * STRIDE - 1], steps[step * STRIDE]);
            if at(1) | at(2) | at(3) | at(4) {
                break;
            }
            from += 4 * STRIDE;
        }
        from
    }
}

/// Scrubs one stream.
pub(super) struct Scrubber {
    forms: Forms,
    held: Zeroizing<Vec<u8>>,
    /// How many of the held bytes were already forwarded.
    shown: usize,
    /// How many forms were replaced.
    pub(super) found: u64,
    /// The hits by secret since the last [`Self::take_hits`].
    hits: Hits,
}

impl std::fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scrubber").field("held", &self.held.len()).field("found", &self.found).finish()
    }
}

impl Scrubber {
    pub(super) fn new(forms: Forms) -> Self {
        Self { forms, held: Zeroizing::default(), shown: 0, found: 0, hits: Hits::default() }
    }

    /// Takes the next piece, and returns the bytes that are decided.
    pub(super) fn push(&mut self, piece: Bytes) -> Bytes {
        if self.forms.is_empty() {
            return piece;
        }
        if self.held.is_empty() {
            // The common case: a piece without any match is returned unchanged.
            return match self.forms.find(&piece, 0, false) {
                None => piece,
                Some((place, Match::Undecided)) => {
                    self.held.extend_from_slice(&piece[place..]);
                    piece.slice(..place)
                }
                Some(_) => self.scrub(piece.to_vec(), false),
            };
        }
        let mut whole = std::mem::take(&mut *self.held);
        whole.extend_from_slice(&piece);
        self.scrub(whole, false)
    }

    /// Called at the end of a message: releases bytes that were held back, as far as possible.
    pub(super) fn message_ended(&mut self) -> Bytes {
        if self.held.len() > SHOWN_MAX || self.held.len() <= self.shown {
            return Bytes::new();
        }
        let free = Bytes::copy_from_slice(&self.held[self.shown..]);
        self.shown = self.held.len();
        free
    }

    /// The forms that were replaced since the last call, by secret.
    pub(super) fn take_hits(&mut self) -> Hits {
        std::mem::take(&mut self.hits)
    }

    /// How many bytes are held back and were not forwarded.
    pub(super) fn held(&self) -> usize {
        self.held.len() - self.shown.min(self.held.len())
    }

    /// Called at the regular end of the stream: returns the remaining bytes.
    pub(super) fn end(&mut self) -> Bytes {
        if self.held.is_empty() {
            return Bytes::new();
        }
        let whole = std::mem::take(&mut *self.held);
        self.scrub(whole, true)
    }

    /// Replaces the forms in `whole`, whose first `shown` bytes were already forwarded.
    fn scrub(&mut self, mut whole: Vec<u8>, ended: bool) -> Bytes {
        let mut place = 0;
        let mut decided = whole.len();
        while let Some((at, found)) = self.forms.find(&whole, place, ended) {
            match found {
                Match::Form(form) => {
                    let length = self.forms.inner.forms[form].len();
                    whole[at..at + length].fill(BLOT);
                    self.found += 1;
                    self.hits.add(&self.forms.inner.owners[form], 1);
                    place = at + length;
                }
                Match::Undecided => {
                    decided = at;
                    break;
                }
                Match::Nothing => break,
            }
        }
        let shown = self.shown.min(decided);
        self.held.extend_from_slice(&whole[decided..]);
        whole[decided..].zeroize();
        whole.truncate(decided);
        self.shown -= shown;
        debug_assert!(self.held.len() < self.forms.inner.longest.max(1));
        Bytes::from(whole).slice(shown..)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scrubbed(forms: &Forms, pieces: &[&[u8]]) -> (Vec<u8>, u64) {
        let mut scrubber = Scrubber::new(forms.clone());
        let mut clean = Vec::new();
        for piece in pieces {
            clean.extend_from_slice(&scrubber.push(Bytes::copy_from_slice(piece)));
        }
        clean.extend_from_slice(&scrubber.end());
        (clean, scrubber.found)
    }

    /// Streams of partial forms, complete forms and other bytes.
    fn stream(secret: &'static [u8]) -> impl Strategy<Value = Vec<u8>> {
        let forms = secret_forms::of(secret);
        let part = (0..forms.len(), 0..=64usize, any::<bool>()).prop_map(move |(form, length, whole)| {
            let form = &forms[form];
            form[..if whole { form.len() } else { length.min(form.len()) }].to_vec()
        });
        let other = proptest::collection::vec(any::<u8>(), 0..20);
        proptest::collection::vec(prop_oneof![part, other], 0..12).prop_map(|parts| parts.concat())
    }

    const SECRET: &[u8] = b"sk-aab/aab+aa\"aab";

    proptest! {
        #[test]
        fn e_s2_every_split_gives_the_same_result_without_any_form(
            text in stream(SECRET),
            mut cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..12),
        ) {
            let forms = Forms::exact([SECRET]);
            let (whole, found) = scrubbed(&forms, &[&text]);
            cuts.sort_by_key(|cut| cut.index(text.len() + 1));
            let (mut pieces, mut from) = (Vec::new(), 0);
            for cut in &cuts {
                let at = cut.index(text.len() + 1);
                pieces.push(&text[from..at]);
                from = at;
            }
            pieces.push(&text[from..]);
            prop_assert_eq!(scrubbed(&forms, &pieces), (whole.clone(), found));
            let single: Vec<&[u8]> = text.chunks(1).collect();
            prop_assert_eq!(scrubbed(&forms, &single), (whole.clone(), found));
            prop_assert_eq!(whole.len(), text.len());
            prop_assert!(!forms.are_in(&whole));
        }
    }

    #[test]
    fn hits_name_every_secret_that_has_the_form() {
        let values = |text: &str| vec![Zeroizing::new(text.as_bytes().to_vec())];
        let forms = Forms::of_each(&[values("token-12345"), values("other-67890"), values("token-12345")]);
        let mut scrubber = Scrubber::new(forms.clone());
        let clean = scrubber.push(Bytes::from_static(b"a token-12345 b other-67890 token-12345 c"));
        assert_eq!(&clean[..], b"a *********** b *********** *********** c");
        let hits = scrubber.take_hits();
        let hits: Vec<(Vec<u16>, u64)> =
            hits.iter().map(|(owners, count)| (owners.to_vec(), count)).collect();
        assert_eq!(hits, [(vec![0, 2], 2), (vec![1], 1)]);
        assert!(scrubber.take_hits().is_empty());
        let mut hits = Hits::default();
        assert!(forms.folded().blot_counted(b"x-OTHER-67890", &mut hits).is_some());
        assert_eq!(hits.iter().map(|(owners, _)| owners.to_vec()).collect::<Vec<_>>(), [[1]]);
    }

    #[test]
    fn a_failed_stream_drops_the_bytes_held_back() {
        let forms = Forms::exact([SECRET]);
        let mut scrubber = Scrubber::new(forms);
        let out = scrubber.push(Bytes::copy_from_slice(&[b"x", &SECRET[..SECRET.len() - 1]].concat()));
        assert_eq!(&out[..], b"x");
        drop(scrubber);
    }

    #[test]
    fn only_possible_starts_of_a_form_are_held_back() {
        let mut scrubber = Scrubber::new(Forms::exact([SECRET]));
        assert_eq!(&scrubber.push(Bytes::from_static(b"data: hello\n\n"))[..], b"data: hello\n\n");
        assert_eq!(&scrubber.push(Bytes::from_static(b"data: s"))[..], b"data: ");
        assert_eq!(&scrubber.push(Bytes::from_static(b"o\n\n"))[..], b"so\n\n");
    }

    #[test]
    fn a_message_is_released_at_its_end_and_a_form_across_two_messages_is_replaced() {
        let mut scrubber = Scrubber::new(Forms::exact([SECRET]));
        let mut seen = Vec::new();
        for piece in SECRET.chunks(1) {
            seen.extend_from_slice(&scrubber.push(Bytes::copy_from_slice(piece)));
            seen.extend_from_slice(&scrubber.message_ended());
        }
        seen.extend_from_slice(&scrubber.end());
        assert_eq!(seen.len(), SECRET.len());
        assert_eq!(&seen[..3], &SECRET[..3]);
        assert!(seen[3..].iter().all(|b| *b == b'*'), "{}", String::from_utf8_lossy(&seen));
        let mut scrubber = Scrubber::new(Forms::exact([SECRET]));
        assert_eq!(&scrubber.push(Bytes::from_static(b"yes"))[..], b"ye");
        assert_eq!(&scrubber.message_ended()[..], b"s");
        assert_eq!(&scrubber.push(Bytes::from_static(b"no"))[..], b"no");
    }

    #[test]
    fn matching_is_case_sensitive_unless_requested_otherwise() {
        let upper = SECRET.to_ascii_uppercase();
        assert!(!Forms::exact([SECRET]).are_in(&upper));
        assert!(Forms::any_case([SECRET]).are_in(&upper));
        assert_eq!(Forms::any_case([&b"token-123"[..]]).blot(b"a Token-123 b").unwrap(), b"a ********* b");
    }
}
