//! Finds secrets in what streams by, and blots them out.
//!
//! ```text
//! piece ──► held + piece ──┬── decided: not the beginning of any form ──► passed on
//!                          ├── a form, whole ──► as many `*`
//!                          └── could still become a form ──► held, at most the longest form less one byte
//! ```
//!
//! What is decided at a byte depends on that byte and those behind it alone, never on where the stream was cut, so any cut
//! gives the same result. What replaces a form is as long as the form, so that lengths told elsewhere (`Content-Length`,
//! frames of WebSocket and gRPC) stay true. What is held is dropped with the [`Scrubber`]; only [`Scrubber::end`], which
//! is called at the good end of a stream, passes it on.
//!
//! A protocol whose messages are answered one by one would wait forever for a last byte that looks like the beginning of a
//! secret. At the end of a message up to [`SHOWN_MAX`] such bytes are passed on; they still count as the beginning.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use zeroize::{Zeroize as _, Zeroizing};

use super::forms::{self, Form};

/// Bytes of a form's beginning that the end of a message sets free.
const SHOWN_MAX: usize = 3;

const BLOT: u8 = b'*';

/// How far apart one may look: the longest stride that a form allows is taken. Further apart than the first, pairs that are
/// near a beginning would be found too often.
const STRIDES: [usize; 4] = [15, 7, 5, 1];

/// Which forms to look for. Cloning is cheap.
#[derive(Clone)]
pub(super) struct Forms {
    inner: Arc<Inner>,
}

struct Inner {
    /// Sorted, without repeats.
    forms: Vec<Form>,
    /// The owners of each form: indexes into the list of secrets that the forms were made of.
    owners: Vec<Owners>,
    /// The pairs of bytes that any form begins with.
    begins: Pairs,
    /// The pairs of bytes that stand near the beginning of any form, `stride` of each.
    near: Pairs,
    /// How far apart one may look for those without missing a form: one less than the shortest form has bytes.
    stride: usize,
    /// Whether letters are looked at without their case.
    folded: bool,
    longest: usize,
    /// The same without regard to case, once somebody asked.
    any_case: OnceLock<Forms>,
}

impl std::fmt::Debug for Forms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// The secrets that one form belongs to. Two secrets with the same value share all their forms.
pub(super) type Owners = Arc<[u16]>;

/// How often forms were found, by the secrets they belong to.
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

/// What stands at one place of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Nothing,
    /// The form with this index.
    Form(usize),
    /// More bytes are needed to say.
    Undecided,
}

impl Forms {
    /// The forms of `secrets`, as they are.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn exact<'a>(secrets: impl IntoIterator<Item = &'a [u8]>) -> Self {
        Self::new(secrets.into_iter().flat_map(forms::of).map(|form| (form, 0)).collect(), false)
    }

    /// The forms of several secrets, as they are. Each secret has one or more values; its position is its owner index.
    pub(super) fn of_each(secrets: &[Vec<Zeroizing<Vec<u8>>>]) -> Self {
        let mut owned = Vec::new();
        for (owner, values) in (0..=u16::MAX).zip(secrets) {
            let forms = values.iter().flat_map(|value| forms::of(value));
            owned.extend(forms.map(|form| (form, owner)));
        }
        Self::new(owned, false)
    }

    /// The forms of `secrets`, in upper, lower or mixed case.
    pub(super) fn any_case<'a>(secrets: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut forms: Vec<(Form, u16)> =
            secrets.into_iter().flat_map(forms::of).map(|form| (form, 0)).collect();
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

    /// The same, without regard to case.
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

    /// Whether `bytes`, which are all there is, hold one.
    pub(super) fn are_in(&self, bytes: &[u8]) -> bool {
        !self.is_empty() && (0..bytes.len()).any(|at| matches!(self.at(&bytes[at..], true), At::Form(_)))
    }

    /// `bytes`, which are all there is, without any form; `None` where there is none in it.
    pub(super) fn blot(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.blot_counted(bytes, &mut Hits::default())
    }

    /// The same, and adds the forms it found to `hits`.
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

    /// What stands at the front of `rest`. At the end of the stream nothing is undecided.
    fn at(&self, rest: &[u8], ended: bool) -> At {
        let fold = |b: u8| if self.inner.folded { b.to_ascii_lowercase() } else { b };
        let [first, behind @ ..] = rest else { return At::Nothing };
        let first = fold(*first);
        let possible = match behind.first() {
            Some(second) => self.inner.begins.has(first, fold(*second)),
            None => true,
        };
        if !possible {
            return At::Nothing;
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
        // A longer form that may still come goes before a shorter one that is there.
        match (longest, undecided > longest && !ended) {
            (_, true) => At::Undecided,
            (0, false) => At::Nothing,
            (_, false) => At::Form(found),
        }
    }

    /// The first place where something other than nothing stands.
    fn find(&self, bytes: &[u8], from: usize, ended: bool) -> Option<(usize, At)> {
        let look = |place: usize| match self.at(&bytes[place..], ended) {
            At::Nothing => None,
            found @ (At::Form(_) | At::Undecided) => Some((place, found)),
        };
        // Whatever begins at one of `stride` places in a row has its bytes at the last of them and behind it, and those two
        // are among the pairs near its beginning. So one look is enough for all of them, mostly.
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

    /// Goes on from `from` in steps of `STRIDE` for as long as none of the pairs stands at the end of a step. May stop early:
    /// it looks at four steps at a time, which is what a processor can do at once.
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

/// One stream that is scrubbed. See the module.
pub(super) struct Scrubber {
    forms: Forms,
    held: Zeroizing<Vec<u8>>,
    /// How many of the held bytes were passed on already.
    shown: usize,
    /// How many forms were blotted out.
    pub(super) found: u64,
    /// The same by secret, since somebody last took it.
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

    /// Takes the next piece, and gives what is decided.
    pub(super) fn push(&mut self, piece: Bytes) -> Bytes {
        if self.forms.is_empty() {
            return piece;
        }
        if self.held.is_empty() {
            // What most pieces are: without anything to see in them, passed on as they are.
            return match self.forms.find(&piece, 0, false) {
                None => piece,
                Some((place, At::Undecided)) => {
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

    /// A message has ended: what was held of it is not held any longer than it must be.
    pub(super) fn message_ended(&mut self) -> Bytes {
        if self.held.len() > SHOWN_MAX || self.held.len() <= self.shown {
            return Bytes::new();
        }
        let free = Bytes::copy_from_slice(&self.held[self.shown..]);
        self.shown = self.held.len();
        free
    }

    /// The forms that were blotted out since the last call, by secret.
    pub(super) fn take_hits(&mut self) -> Hits {
        std::mem::take(&mut self.hits)
    }

    /// How many bytes are held that were not passed on.
    pub(super) fn held(&self) -> usize {
        self.held.len() - self.shown.min(self.held.len())
    }

    /// The stream has ended well: gives the rest.
    pub(super) fn end(&mut self) -> Bytes {
        if self.held.is_empty() {
            return Bytes::new();
        }
        let whole = std::mem::take(&mut *self.held);
        self.scrub(whole, true)
    }

    /// Blots forms out of `whole`, whose first `shown` bytes were passed on before.
    fn scrub(&mut self, mut whole: Vec<u8>, ended: bool) -> Bytes {
        let mut place = 0;
        let mut decided = whole.len();
        while let Some((at, found)) = self.forms.find(&whole, place, ended) {
            match found {
                At::Form(form) => {
                    let length = self.forms.inner.forms[form].len();
                    whole[at..at + length].fill(BLOT);
                    self.found += 1;
                    self.hits.add(&self.forms.inner.owners[form], 1);
                    place = at + length;
                }
                At::Undecided => {
                    decided = at;
                    break;
                }
                At::Nothing => break,
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

    /// Streams in which pieces of forms, whole forms and other things follow each other.
    fn stream(secret: &'static [u8]) -> impl Strategy<Value = Vec<u8>> {
        let forms = forms::of(secret);
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
        fn e_s2_any_cut_gives_the_same_and_no_form_survives(
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
    fn what_fails_drops_what_it_holds() {
        let forms = Forms::exact([SECRET]);
        let mut scrubber = Scrubber::new(forms);
        let out = scrubber.push(Bytes::copy_from_slice(&[b"x", &SECRET[..SECRET.len() - 1]].concat()));
        assert_eq!(&out[..], b"x");
        drop(scrubber);
    }

    #[test]
    fn only_what_could_be_the_beginning_is_held() {
        let mut scrubber = Scrubber::new(Forms::exact([SECRET]));
        assert_eq!(&scrubber.push(Bytes::from_static(b"data: hello\n\n"))[..], b"data: hello\n\n");
        assert_eq!(&scrubber.push(Bytes::from_static(b"data: s"))[..], b"data: ");
        assert_eq!(&scrubber.push(Bytes::from_static(b"o\n\n"))[..], b"so\n\n");
    }

    #[test]
    fn a_message_does_not_wait_for_the_next_and_a_form_across_two_is_blotted_out() {
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
    fn case_matters_unless_it_is_told_not_to() {
        let upper = SECRET.to_ascii_uppercase();
        assert!(!Forms::exact([SECRET]).are_in(&upper));
        assert!(Forms::any_case([SECRET]).are_in(&upper));
        assert_eq!(Forms::any_case([&b"token-123"[..]]).blot(b"a Token-123 b").unwrap(), b"a ********* b");
    }
}
