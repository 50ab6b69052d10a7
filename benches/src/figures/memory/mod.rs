//! Memory: recall and speed.

mod chroma;
mod consolidated;
mod conversations;
mod recall;
mod speed;
mod texts;

pub(super) use recall::measure as measure_recall;
pub(super) use speed::measure as measure_speed;
