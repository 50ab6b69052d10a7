//! Addition for `increment`.
//!
//! Integers stay exact over the whole range of JSON integers here (from -2^63 to 2^64-1); an overflow is an error, never a
//! silently wrong number. If one operand is a fraction, the result is one, too.

use serde_json::{Number, Value};

/// The amount to add.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    Integer(i64),
    Float(f64),
}

impl Amount {
    /// From a JSON number: an integer if it is one.
    pub fn of(number: &Number) -> Option<Self> {
        number.as_i64().map(Self::Integer).or_else(|| number.as_f64().map(Self::Float))
    }
}

/// The sum, or the reason why it does not exist.
pub(super) fn add(current: Option<&Value>, by: Amount) -> Result<Number, String> {
    let current = match current {
        None => return from_amount(by),
        Some(Value::Number(number)) => number,
        Some(other) => return Err(format!("its value is {}, not a number", name_of(other))),
    };
    match (integer(current), by) {
        (Some(current), Amount::Integer(by)) => from_integer(current + i128::from(by)),
        (Some(_) | None, Amount::Integer(_) | Amount::Float(_)) => {
            let by = match by {
                #[expect(clippy::cast_precision_loss, reason = "a sum with a fraction is a fraction")]
                Amount::Integer(by) => by as f64,
                Amount::Float(by) => by,
            };
            let sum = current.as_f64().unwrap_or(f64::NAN) + by;
            Number::from_f64(sum).ok_or_else(|| "the sum is not a finite number".to_owned())
        }
    }
}

fn from_amount(by: Amount) -> Result<Number, String> {
    match by {
        Amount::Integer(by) => Ok(by.into()),
        Amount::Float(by) => {
            Number::from_f64(by).ok_or_else(|| "the amount is not a finite number".to_owned())
        }
    }
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn from_integer(sum: i128) -> Result<Number, String> {
    let fits = i64::try_from(sum).map(Number::from).or_else(|_| u64::try_from(sum).map(Number::from));
    fits.map_err(|_| format!("the sum {sum} does not fit in 64 bits"))
}

fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sum(current: Value, by: Amount) -> Result<Value, String> {
        add(Some(&current), by).map(Value::Number)
    }

    #[test]
    fn integers_stay_exact_to_the_ends_of_their_range() {
        assert_eq!(
            sum(json!(9_007_199_254_740_993_i64), Amount::Integer(1)),
            Ok(json!(9_007_199_254_740_994_i64))
        );
        assert_eq!(sum(json!(i64::MAX), Amount::Integer(1)), Ok(json!(i64::MAX as u64 + 1)));
        assert_eq!(sum(json!(u64::MAX), Amount::Integer(-1)), Ok(json!(u64::MAX - 1)));
        assert!(sum(json!(u64::MAX), Amount::Integer(1)).unwrap_err().contains("64 bits"));
        assert!(sum(json!(i64::MIN), Amount::Integer(-1)).unwrap_err().contains("64 bits"));
    }

    #[test]
    fn a_fraction_makes_the_sum_a_fraction() {
        assert_eq!(sum(json!(1), Amount::Float(0.5)), Ok(json!(1.5)));
        assert_eq!(sum(json!(1.5), Amount::Integer(1)), Ok(json!(2.5)));
        assert!(sum(json!(f64::MAX), Amount::Float(f64::MAX)).unwrap_err().contains("finite"));
        assert!(add(None, Amount::Float(f64::NAN)).unwrap_err().contains("finite"));
    }

    #[test]
    fn the_absent_counts_from_zero_and_the_rest_is_named() {
        assert_eq!(add(None, Amount::Integer(-3)), Ok(Number::from(-3)));
        assert!(sum(json!("7"), Amount::Integer(1)).unwrap_err().contains("a text, not a number"));
        assert!(sum(json!(null), Amount::Integer(1)).unwrap_err().contains("null, not a number"));
    }
}
