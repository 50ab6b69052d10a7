//! Converts the configuration of an image between the formats' types and ours.

use burrow_images::RunConfig;
use burrow_model::ImageConfig;

/// Variables of one image: as many as an `execve` could be given at a few bytes each.
const VARIABLES_MAX: usize = 10_000;

pub(super) fn of_run_config(run: RunConfig) -> ImageConfig {
    // Variables that `execve` cannot pass are dropped: a name with `=` would become another variable.
    let fits = |(name, value): &(String, String)| {
        !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
    };
    ImageConfig {
        env: run.env.into_iter().filter(fits).take(VARIABLES_MAX).collect(),
        user: run.user.filter(|user| !user.is_empty()),
        // A relative one would depend on the current directory.
        workdir: run.workdir.filter(|path| path.starts_with('/') && !path.contains('\0')),
        entrypoint: run.entrypoint,
        cmd: run.cmd,
        labels: run.labels,
        exposed_ports: run.exposed_ports,
    }
}

pub(super) fn to_run_config(config: &ImageConfig) -> RunConfig {
    RunConfig {
        env: config.env.clone().into_iter().collect(),
        user: config.user.clone(),
        workdir: config.workdir.clone(),
        entrypoint: config.entrypoint.clone(),
        cmd: config.cmd.clone(),
        labels: config.labels.clone(),
        exposed_ports: config.exposed_ports.clone(),
        stop_signal: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_execve_cannot_pass_are_dropped() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let run = RunConfig {
            env: vec![pair("A", "1"), pair("", "x"), pair("B=C", "x"), pair("N", "\0"), pair("a.b", "2")],
            user: Some(String::new()),
            workdir: Some("rel".to_owned()),
            ..RunConfig::default()
        };
        let config = of_run_config(run);
        assert_eq!(config.env.keys().collect::<Vec<_>>(), ["A", "a.b"]);
        assert_eq!((config.user, config.workdir), (None, None));
    }

    #[test]
    fn a_configuration_survives_export_and_import() {
        let config = ImageConfig {
            env: [("A".to_owned(), "1".to_owned())].into(),
            user: Some("user".to_owned()),
            workdir: Some("/srv".to_owned()),
            entrypoint: vec!["/run".to_owned()],
            cmd: vec!["a".to_owned()],
            labels: [("l".to_owned(), "v".to_owned())].into(),
            exposed_ports: ["80/tcp".to_owned()].into(),
        };
        assert_eq!(of_run_config(to_run_config(&config)), config);
    }
}
