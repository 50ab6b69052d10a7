//! Validates single values; errors name the field.

use burrow_model::{ImageName, ImageRef, Label, Name, check_env_name};

use crate::error::ApiError;

/// The kernel's limit.
const PATH_BYTES_MAX: usize = 4096;

/// Maximum length of a user, a working directory, one argument; the kernel allows 128 KiB for an argument.
const TEXT_BYTES_MAX: usize = 128 << 10;

pub fn name(field: &str, text: &str) -> Result<Name, ApiError> {
    text.parse().map_err(|error| ApiError::invalid(format!("invalid `{field}`: {error}")))
}

pub fn image_name(field: &str, text: &str) -> Result<ImageName, ApiError> {
    text.parse().map_err(|error| ApiError::invalid(format!("invalid `{field}`: {error}")))
}

/// An image's name or id.
pub fn image_reference(field: &str, text: &str) -> Result<ImageRef, ApiError> {
    text.parse().map_err(|error| ApiError::invalid(format!("invalid `{field}`: {error}")))
}

pub(super) fn label(key: &str, value: &str) -> Result<Label, ApiError> {
    Label::new(key, value).map_err(|error| ApiError::invalid(format!("invalid `labels`: {error}")))
}

pub(super) fn variable(field: &str, name: &str, value: &str) -> Result<(), ApiError> {
    check_env_name(name, value).map_err(|error| ApiError::invalid(format!("invalid `{field}`: {error}")))
}

/// A string that may be passed to `execve`.
pub fn check_text(field: &str, text: &str) -> Result<(), ApiError> {
    if text.contains('\0') {
        return Err(ApiError::invalid(format!("`{field}` holds a NUL byte")));
    }
    if text.len() > TEXT_BYTES_MAX {
        return Err(ApiError::invalid(format!("`{field}` is longer than {TEXT_BYTES_MAX} bytes")));
    }
    Ok(())
}

/// A path inside a sandbox. The guest resolves it.
pub fn check_path(field: &str, path: &str) -> Result<(), ApiError> {
    if !path.starts_with('/') {
        return Err(ApiError::invalid(format!("`{field}` must be an absolute path")));
    }
    if path.contains('\0') {
        return Err(ApiError::invalid(format!("`{field}` holds a NUL byte")));
    }
    if path.len() > PATH_BYTES_MAX {
        return Err(ApiError::invalid(format!("`{field}` is longer than {PATH_BYTES_MAX} bytes")));
    }
    Ok(())
}

/// `name`, `uid`, `name:group` or `uid:gid`; only the guest knows whether they exist.
pub fn user(field: &str, text: &str) -> Result<(), ApiError> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '$');
    if (1..=128).contains(&text.len()) && text.chars().all(good) {
        return Ok(());
    }
    Err(ApiError::invalid(format!("`{field}` must be like `name`, `1000`, `name:group` or `1000:1000`")))
}

/// Octal permission bits, e.g. `0644`.
pub fn parse_mode(field: &str, text: &str) -> Result<u32, ApiError> {
    let digits = (1..=5).contains(&text.len()) && text.bytes().all(|b| (b'0'..=b'7').contains(&b));
    match u32::from_str_radix(text, 8) {
        Ok(mode) if digits && mode <= 0o7777 => Ok(mode),
        Ok(_) | Err(_) => {
            Err(ApiError::invalid(format!("`{field}` must be octal permission bits, like `0644`")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ambiguous_and_malformed_values_are_rejected() {
        for bad in ["", "rel", "/a\0b", &format!("/{}", "a".repeat(5000))] {
            assert!(check_path("path", bad).is_err(), "{bad:?}");
        }
        for bad in ["", "root\u{1b}", "a b", "a\0", &"a".repeat(200)] {
            assert!(user("user", bad).is_err(), "{bad:?}");
        }
        assert_eq!(parse_mode("mode", "0644").ok(), Some(0o644));
        assert_eq!(parse_mode("mode", "7777").ok(), Some(0o7777));
        for bad in ["", "8", "-1", "+644", "0o644", "17777", "644 "] {
            assert!(parse_mode("mode", bad).is_err(), "{bad:?}");
        }
    }
}
