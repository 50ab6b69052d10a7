//! Tokens with prefixes that their issuers chose.
//!
//! If a prefix is short, the length is exact or long, so that words, hashes and names are not mistaken for
//! tokens. Secrets without a format (the secret half of an AWS key, an Azure account key) are recognised by their names.

/// A token with a known prefix.
struct Shape {
    prefix: &'static str,
    /// The least number of characters after the prefix.
    rest_min: usize,
    /// Whether that number is exact, for formats with a fixed length and a prefix that occurs by chance.
    exact: bool,
    body: Body,
}

#[derive(Clone, Copy)]
pub(super) enum Body {
    /// `A-Z0-9`.
    Upper,
    /// `A-Za-z0-9`.
    Alphanumeric,
    /// `A-Za-z0-9_-`.
    Url,
    /// `A-Za-z0-9_-.`, for tokens with several parts.
    Parts,
}

impl Body {
    pub(super) fn has(self, b: u8) -> bool {
        match self {
            Self::Upper => b.is_ascii_uppercase() || b.is_ascii_digit(),
            Self::Alphanumeric => b.is_ascii_alphanumeric(),
            Self::Url => b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'),
            Self::Parts => b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'),
        }
    }
}

const fn shape(prefix: &'static str, rest_min: usize, body: Body) -> Shape {
    Shape { prefix, rest_min, exact: false, body }
}

const SHAPES: &[Shape] = &[
    // Amazon: access key ids. (The secret half has no format; it is recognised by its name.)
    Shape { prefix: "AKIA", rest_min: 16, exact: true, body: Body::Upper },
    Shape { prefix: "ASIA", rest_min: 16, exact: true, body: Body::Upper },
    Shape { prefix: "ABIA", rest_min: 16, exact: true, body: Body::Upper },
    Shape { prefix: "ACCA", rest_min: 16, exact: true, body: Body::Upper },
    Shape { prefix: "A3T", rest_min: 17, exact: true, body: Body::Upper },
    // GitHub and GitLab.
    shape("ghp_", 30, Body::Alphanumeric),
    shape("gho_", 30, Body::Alphanumeric),
    shape("ghu_", 30, Body::Alphanumeric),
    shape("ghs_", 30, Body::Alphanumeric),
    shape("ghr_", 30, Body::Alphanumeric),
    shape("github_pat_", 22, Body::Url),
    shape("glpat-", 20, Body::Parts),
    shape("gldt-", 20, Body::Url),
    shape("glrt-", 20, Body::Parts),
    shape("glptt-", 20, Body::Url),
    shape("glcbt-", 20, Body::Url),
    shape("glagent-", 20, Body::Url),
    shape("glsoat-", 20, Body::Url),
    shape("gloas-", 20, Body::Url),
    // OpenAI, Anthropic and others with the same prefix.
    shape("sk-", 20, Body::Url),
    // Slack.
    shape("xoxb-", 10, Body::Url),
    shape("xoxa-", 10, Body::Url),
    shape("xoxp-", 10, Body::Url),
    shape("xoxr-", 10, Body::Url),
    shape("xoxs-", 10, Body::Url),
    shape("xoxe-", 10, Body::Url),
    shape("xapp-", 10, Body::Url),
    shape("xoxe.xoxp-", 10, Body::Url),
    shape("xoxe.xoxb-", 10, Body::Url),
    // Google.
    shape("AIza", 35, Body::Url),
    shape("ya29.", 20, Body::Url),
    shape("GOCSPX-", 20, Body::Url),
    shape("1//0", 30, Body::Url),
    // Stripe, npm, PyPI, Hugging Face, SendGrid, DigitalOcean, Linear, Databricks, age.
    shape("sk_live_", 16, Body::Alphanumeric),
    shape("sk_test_", 16, Body::Alphanumeric),
    shape("rk_live_", 16, Body::Alphanumeric),
    shape("rk_test_", 16, Body::Alphanumeric),
    shape("sk_prod_", 16, Body::Alphanumeric),
    shape("whsec_", 16, Body::Alphanumeric),
    shape("npm_", 36, Body::Alphanumeric),
    shape("pypi-AgE", 16, Body::Url),
    shape("rubygems_", 40, Body::Alphanumeric),
    shape("dckr_pat_", 20, Body::Url),
    shape("dckr_oat_", 20, Body::Url),
    shape("hf_", 30, Body::Alphanumeric),
    shape("SG.", 40, Body::Parts),
    shape("dop_v1_", 40, Body::Alphanumeric),
    shape("lin_api_", 30, Body::Alphanumeric),
    shape("dapi", 32, Body::Alphanumeric),
    shape("AGE-SECRET-KEY-1", 40, Body::Upper),
    // HashiCorp, Pulumi, Fly, Heroku, Netlify, Vercel, Cloudflare's origin CA.
    shape("hvs.", 24, Body::Url),
    shape("hvb.", 24, Body::Url),
    shape("hvr.", 24, Body::Url),
    shape("pul-", 40, Body::Alphanumeric),
    shape("fo1_", 40, Body::Url),
    shape("fm2_", 40, Body::Url),
    shape("HRKU-", 36, Body::Url),
    shape("nfp_", 36, Body::Alphanumeric),
    shape("v1.0-", 100, Body::Url),
    // Shopify, Square, Atlassian, Postman, New Relic, Grafana, Sentry, Doppler, Notion, Figma, PlanetScale, Mailgun,
    // Groq, xAI, Replicate, Perplexity, Tailscale, 1Password.
    Shape { prefix: "shpat_", rest_min: 32, exact: true, body: Body::Alphanumeric },
    Shape { prefix: "shpca_", rest_min: 32, exact: true, body: Body::Alphanumeric },
    Shape { prefix: "shppa_", rest_min: 32, exact: true, body: Body::Alphanumeric },
    Shape { prefix: "shpss_", rest_min: 32, exact: true, body: Body::Alphanumeric },
    shape("sq0atp-", 20, Body::Url),
    shape("sq0csp-", 40, Body::Url),
    shape("EAAA", 56, Body::Url),
    shape("ATATT3", 60, Body::Url),
    shape("PMAK-", 50, Body::Url),
    shape("NRAK-", 27, Body::Upper),
    shape("glsa_", 32, Body::Url),
    shape("glc_eyJ", 30, Body::Alphanumeric),
    shape("sntrys_", 40, Body::Url),
    shape("sntryu_", 40, Body::Alphanumeric),
    shape("dp.pt.", 40, Body::Alphanumeric),
    shape("ntn_", 40, Body::Alphanumeric),
    shape("figd_", 36, Body::Url),
    shape("pscale_tkn_", 30, Body::Parts),
    shape("pscale_pw_", 30, Body::Parts),
    shape("key-", 32, Body::Alphanumeric),
    shape("gsk_", 40, Body::Alphanumeric),
    shape("xai-", 60, Body::Alphanumeric),
    shape("r8_", 36, Body::Alphanumeric),
    shape("pplx-", 40, Body::Alphanumeric),
    shape("tskey-", 20, Body::Url),
    shape("ops_eyJ", 60, Body::Alphanumeric),
];

/// The length of the token that these bytes begin with.
pub(super) fn shape_at(bytes: &[u8]) -> Option<usize> {
    let mut fitting = SHAPES.iter().filter(|shape| bytes.starts_with(shape.prefix.as_bytes()));
    fitting.find_map(|shape| {
        let body = &bytes[shape.prefix.len()..];
        let length = body.iter().take_while(|b| shape.body.has(**b)).count();
        let long_enough = if shape.exact { length == shape.rest_min } else { length >= shape.rest_min };
        // A format with an exact length is specific enough.
        let random = super::looks_random(&body[..length])
            || shape.exact && body[..length].iter().any(u8::is_ascii_digit);
        (long_enough && random).then_some(shape.prefix.len() + length)
    })
}
