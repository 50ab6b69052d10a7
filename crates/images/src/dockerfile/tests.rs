//! Parsing, planning and lowering of Dockerfiles, and their errors.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::recipe::{CacheMount, InlineFile, RunCommand, RunMount, SourceTree, Step, TreeCopy};

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn plan(text: &str, arguments: &[(&str, &str)], target: Option<&str>) -> Result<DockerPlan, ImageError> {
    let platform = Platform { os: "linux".to_owned(), architecture: "amd64".to_owned(), variant: None };
    parse(text)?.plan(&PlanOptions { arguments: &pairs(arguments), target, platform: &platform })
}

fn lower(text: &str, arguments: &[(&str, &str)]) -> Result<Vec<LoweredStage>, ImageError> {
    let plan = plan(text, arguments, None)?;
    let env = pairs(&[("PATH", "/bin"), ("BASE", "base")]);
    let scope = StageScope { env, workdir: Some("/base".to_owned()) };
    plan.lower(&plan.images().into_iter().map(|(name, _)| (name, scope.clone())).collect())
}

/// The steps of the last stage.
#[track_caller]
fn steps(text: &str) -> Vec<Step> {
    let stage = lower(text, &[]).unwrap().pop().unwrap();
    stage.steps.into_iter().map(|step| step.content.step).collect()
}

fn shell(text: &str) -> Step {
    command(&["/bin/sh", "-c", text], &[])
}

fn command(argv: &[&str], arguments: &[(&str, &str)]) -> Step {
    let (argv, arguments) = (strings(argv), pairs(arguments));
    Step::Command(RunCommand { argv, arguments, mounts: Vec::new(), offline: false })
}

fn mounts(text: &str) -> Vec<RunMount> {
    let Some(Step::Command(command)) = steps(text).pop() else { panic!("{text}") };
    command.mounts
}

#[track_caller]
fn check_refused(text: &str, line: usize, word: &str) {
    let error = lower(text, &[]).unwrap_err();
    let shown = error.to_string();
    assert!(shown.starts_with(&format!("Dockerfile:{line}: ")) && shown.contains(word), "{shown}");
    assert!(error.hint().is_some());
}

#[test]
fn comments_continued_lines_and_directives_are_read() {
    let text = "# syntax=docker/dockerfile:1\n# escape=`\n\n# comment\nfrom a\n  run one `\n# inside\n\n  two `\n  three\n\
                RUN a\\b\n";
    assert_eq!(steps(text), [shell("one   two   three"), shell("a\\b")]);
    let stage = lower(text, &[]).unwrap().remove(0);
    assert_eq!(stage.steps.iter().map(|step| step.line).collect::<Vec<_>>(), [6, 11]);
    assert_eq!(stage.steps[1].content.text, "RUN a\\b");
    assert_eq!(steps("FROM a\nRUN x \\\r\n  y\r\n"), [shell("x   y")]);
    check_refused("# escape=x\nFROM a", 1, "escape");
}

#[test]
fn variables_are_expanded_with_defaults_and_alternatives() {
    let of = |value: &str| {
        let text = format!("FROM a\nARG ARGUMENT=arg\nENV SET=set EMPTY=\"\"\nENV X={value}\n");
        let Some(Step::Env(env)) = steps(&text).pop() else { panic!("{value}") };
        env["X"].clone()
    };
    for (value, expected) in [
        ("$SET", "set"),
        ("${SET}x$BASE", "setxbase"),
        ("$PATH:/app", "/bin:/app"),
        ("$ARGUMENT", "arg"),
        ("${NONE:-a${SET}}", "aset"),
        ("${EMPTY:-default}", "default"),
        ("${EMPTY-default}", ""),
        ("${SET:+yes}", "yes"),
        ("${NONE:+yes}", ""),
        ("${SET:?missing}", "set"),
        ("\\$SET", "$SET"),
        ("'$SET'", "$SET"),
        ("\"$SET ${NONE:-'a b'}\"", "set a b"),
        ("a\\ b", "a b"),
        ("$", "$"),
        ("$SET$", "set$"),
    ] {
        assert_eq!(of(value), expected, "{value}");
    }
    check_refused("FROM a\nENV A=\"${NONE:?no value}\"\n", 2, "no value");
    check_refused("FROM a\nENV A=${A%x}\n", 2, "not supported");
    check_refused("FROM a\nENV A=${A\n", 2, "not supported");
    check_refused("FROM a\nENV A=\"x\n", 2, "closing");
    // Every line doubles the value.
    let bomb = format!("FROM a\nENV A=aaaaaaaa\n{}", "ENV A=$A$A\n".repeat(100));
    assert!(lower(&bomb, &[]).is_err());
    assert!(lower(&format!("FROM a\nENV A={}", "${A:-".repeat(10_000)), &[]).is_err());
}

#[test]
fn the_variables_of_one_instruction_do_not_see_each_other() {
    let made = steps("FROM a\nENV A=1\nENV A=2 B=$A\nENV C  old form $A\nLABEL a.b=\"c d\" e='f'\n");
    assert_eq!(made[1], Step::Env(pairs(&[("A", "2"), ("B", "1")])));
    assert_eq!(made[2], Step::Env(pairs(&[("C", "old form 2")])));
    assert_eq!(made[3], Step::Labels(pairs(&[("a.b", "c d"), ("e", "f")])));
}

#[test]
fn arguments_have_values_where_they_are_declared() {
    let text =
        "ARG TAG=1\nFROM app:$TAG AS one\nARG TAG\nARG OTHER=x\nRUN a\nFROM one\nRUN b\nENV TAG=env\nRUN c\n";
    let of = |arguments: &[(&str, &str)]| lower(text, arguments).unwrap();
    let made = of(&[("TAG", "2"), ("OTHER", "y")]);
    assert_eq!(made[0].base, StageBase::Image("app:2".to_owned()));
    let argv = ["/bin/sh", "-c", "a"];
    assert_eq!(made[0].steps[0].content.step, command(&argv, &[("TAG", "2"), ("OTHER", "y")]));
    let argv = ["/bin/sh", "-c", "b"];
    assert_eq!(made[1].steps[0].content.step, command(&argv, &[("TAG", "2"), ("OTHER", "y")]), "inherited");
    let argv = ["/bin/sh", "-c", "c"];
    assert_eq!(made[1].steps[2].content.step, command(&argv, &[("OTHER", "y")]), "a variable hides it");
    assert_eq!(of(&[])[0].base, StageBase::Image("app:1".to_owned()));
    // Without a declaration, an argument of the beginning has no value in a stage.
    assert_eq!(steps("ARG A=1\nFROM a\nENV X=$A\n"), [Step::Env(pairs(&[("X", "")]))]);
    let platform = "FROM --platform=$BUILDPLATFORM a\nARG TARGETARCH\nENV X=$TARGETARCH\n";
    assert_eq!(steps(platform), [Step::Env(pairs(&[("X", "amd64")]))]);
    check_refused("FROM --platform=linux/arm64 a\n", 1, "linux/arm64");
    check_refused("ARG NONE\nFROM $NONE\n", 2, "empty");
    let notes = plan(text, &[("UNKNOWN", "1"), ("http_proxy", "x")], None).unwrap().notes;
    assert_eq!(notes, ["no ARG declares the build argument `UNKNOWN`"]);
}

#[test]
fn only_stages_that_the_target_needs_are_built() {
    let text = "FROM a AS base\nFROM b AS unused\nFROM base AS build\nRUN x\nFROM scratch AS final\n\
                COPY --from=build /x /y\nCOPY --from=other:1 /z /\nRUN --mount=from=base,target=/b true\nFROM c AS later\n";
    let of = |target| plan(text, &[], target).unwrap();
    let titles = |plan: &DockerPlan| plan.stages.iter().map(|stage| stage.title.clone()).collect::<Vec<_>>();
    assert_eq!(titles(&of(None)), ["later"]);
    let made = of(Some("FINAL"));
    assert_eq!(titles(&made), ["base", "build", "final"]);
    let images: Vec<String> = made.images().into_iter().map(|(name, _)| name).collect();
    assert_eq!(images, ["a", "other:1"]);
    let stages = made.lower(&BTreeMap::new()).unwrap();
    assert_eq!((&stages[1].base, &stages[2].base), (&StageBase::Stage(0), &StageBase::Scratch));
    let tree = |step: &Step| {
        let Step::CopyTree(copy) = step else { panic!("{step:?}") };
        copy.tree.clone()
    };
    assert_eq!(tree(&stages[2].steps[0].content.step), SourceTree::Stage(1));
    assert_eq!(tree(&stages[2].steps[1].content.step), SourceTree::Image("other:1".to_owned()));
    assert_eq!(titles(&of(Some("1"))), ["unused"]);
    let error = plan(text, &[], Some("missing")).unwrap_err().to_string();
    assert!(error.contains("no stage `missing`") && error.contains("base, unused"), "{error}");
}

#[test]
fn commands_use_the_shell_of_the_stage() {
    let made = steps(
        "FROM a\nRUN [\"a\", \"b c\"]\nRUN [ -e x ]\nSHELL [\"/bin/bash\", \"-ec\"]\nRUN x\nCMD y $HOME\nENTRYPOINT z\n\
         ENTRYPOINT [\"run\"]\n",
    );
    assert_eq!(made[0], command(&["a", "b c"], &[]));
    assert_eq!(made[1], shell("[ -e x ]"), "not a list in JSON");
    assert_eq!(made[2], command(&["/bin/bash", "-ec", "x"], &[]));
    let cmd = Step::Cmd(strings(&["/bin/bash", "-ec", "y $HOME"]));
    assert_eq!(made[3], cmd);
    assert_eq!(made[6], Step::Entrypoint(strings(&["run"])));
    assert_eq!(made[7], cmd, "a command of this stage survives its entrypoint");
    assert_eq!(steps("FROM a\nENTRYPOINT [\"x\"]\n"), [Step::Entrypoint(strings(&["x"]))]);
    check_refused("FROM a\nSHELL bash\n", 2, "JSON");
    check_refused("FROM a\nRUN []\n", 2, "empty");
}

#[test]
fn heredocs_are_scripts_or_input() {
    let text = "FROM a\nRUN <<EOF\nset -e\necho $HOME # not a comment of the file\nEOF\n\
                RUN python3 <<-'A' && cat <<B\n\t1\n\tA\n2\nB\nRUN <<X\n#!/usr/bin/python3\nprint(1)\nX\nRUN after\n";
    let made = steps(text);
    assert_eq!(made[0], shell("set -e\necho $HOME # not a comment of the file\n"));
    assert_eq!(made[1], shell("python3 <<-'A' && cat <<B\n\t1\n\tA\n2\nB\n"));
    let Step::Command(script) = &made[2] else { panic!("{made:?}") };
    assert_eq!(script.argv.last().unwrap(), "#!/usr/bin/python3\nprint(1)\n");
    assert_eq!(made[3], shell("after"));
    let copied =
        steps("FROM a\nENV V=1\nCOPY <<a <<\"b\" /dir/\n$V \\$V\na\n$V\nb\nCOPY <<-EOF /x\n\tt\n\tEOF\n");
    let Step::CopyTree(TreeCopy { files, to, sources, .. }) = &copied[1] else { panic!("{copied:?}") };
    let file = |name: &str, content: &str| InlineFile { name: name.to_owned(), content: content.to_owned() };
    assert_eq!(*files, [file("a", "1 $V\n"), file("b", "$V\n")]);
    assert_eq!((to.as_str(), sources.len()), ("/dir/", 0));
    let Step::CopyTree(TreeCopy { files, .. }) = &copied[2] else { panic!("{copied:?}") };
    assert_eq!(*files, [file("EOF", "t\n")]);
    check_refused("FROM a\nRUN <<EOF\nx\n", 2, "no end");
    assert_eq!(steps("FROM a\nRUN echo \"<<EOF\" $((1<<2))\n"), [shell("echo \"<<EOF\" $((1<<2))")]);
}

#[test]
fn copies_have_absolute_destinations_and_relative_sources() {
    let of = |line: &str| {
        let step = steps(&format!("FROM a\nWORKDIR app\nENV D=dir\n{line}\n")).pop();
        let Some(Step::CopyTree(copy)) = step else { panic!("{step:?}") };
        copy
    };
    let copy = of("COPY --chown=me:33 --chmod=0755 --link ./a /b/../c");
    assert_eq!((copy.sources, copy.to.as_str()), (strings(&["a"]), "/c"));
    assert_eq!((copy.owner.as_deref(), copy.mode, copy.unpack), (Some("me:33"), Some(0o755), false));
    for (line, sources, to) in [
        ("COPY . .", strings(&[""]), "/base/app/"),
        ("COPY a b ./$D/", strings(&["a", "b"]), "/base/app/dir/"),
        ("COPY [\"a b\", \"/x y\"]", strings(&["a b"]), "/x y"),
        ("COPY ../../x*/y /", strings(&["x*/y"]), "/"),
        ("ADD a.tgz /opt", strings(&["a.tgz"]), "/opt"),
    ] {
        let copy = of(line);
        assert_eq!(
            (copy.sources, copy.to.as_str(), copy.unpack),
            (sources, to, line.starts_with("ADD")),
            "{line}"
        );
    }
    check_refused("FROM a\nCOPY a b c\n", 2, "ends with `/`");
    check_refused("FROM a\nCOPY a\n", 2, "destination");
    check_refused("FROM a\nCOPY --chmod=u+x a b\n", 2, "octal");
    check_refused("FROM a\nCOPY --parents a b\n", 2, "--parents");
    check_refused("FROM a\nADD https://example.com/x /x\n", 2, "RUN");
    check_refused("FROM a\nCOPY --chown=../x a b\n", 2, "user");
}

#[test]
fn mounts_of_commands_are_read() {
    let cache = "RUN --mount=type=cache,target=/root/.cache/pip,sharing=locked";
    let made = mounts(&format!("FROM a\n{cache} --mount=type=cache,id=x,target=rel,uid=5,mode=0700 pip\n"));
    let mount = |id: &str, target: &str, uid, mode| {
        RunMount::Cache(CacheMount { id: id.to_owned(), target: target.to_owned(), uid, gid: 0, mode })
    };
    assert_eq!(
        made,
        [mount("/root/.cache/pip", "/root/.cache/pip", 0, 0o755), mount("x", "/base/rel", 5, 0o700)]
    );
    let made = mounts(
        "FROM a AS one\nFROM b\nRUN --mount=source=/x,target=y,ro --mount=type=bind,from=one,target=/z --mount=type=tmpfs,target=/t x\n",
    );
    let bind = |tree, source: &str, target: &str| RunMount::Bind {
        tree,
        source: source.to_owned(),
        target: target.to_owned(),
    };
    let expected = [
        bind(SourceTree::Context, "x", "/base/y"),
        bind(SourceTree::Stage(0), "", "/z"),
        RunMount::Tmpfs { target: "/t".to_owned() },
    ];
    assert_eq!(made, expected);
    check_refused("FROM a\nRUN --mount=type=secret,id=x y\n", 2, "type=secret");
    check_refused("FROM a\nRUN --mount=type=cache,target=/x,from=y z\n", 2, "from");
    check_refused("FROM a\nRUN --mount=type=cache z\n", 2, "target");
    check_refused("FROM a\nRUN --mount=type=cache,target=/ z\n", 2, "target");
    check_refused("FROM a\nRUN --network=host z\n", 2, "host");
    check_refused("FROM a\nRUN --nothing z\n", 2, "nothing");
}

#[test]
fn the_other_instructions_change_the_configuration() {
    let text = "FROM a\nWORKDIR x/\nWORKDIR ../y\nUSER 33:33\nEXPOSE 80 53/udp 90-91\n";
    let ports = strings(&["80/tcp", "53/udp", "90/tcp", "91/tcp"]).into_iter().collect();
    let expected = [
        Step::Workdir("/base/x".to_owned()),
        Step::Workdir("/base/y".to_owned()),
        Step::User("33:33".to_owned()),
        Step::Expose(ports),
    ];
    assert_eq!(steps(text), expected);
    let text = "FROM a\nMAINTAINER me\nHEALTHCHECK --interval=5s CMD curl\nVOLUME /data\nSTOPSIGNAL 9\n";
    let notes = plan(text, &[], None).unwrap().notes;
    assert_eq!(notes.len(), 4);
    assert!(notes[1].starts_with("Dockerfile:3: HEALTHCHECK has no effect"), "{notes:?}");
    assert_eq!(steps(text), []);
    check_refused("FROM a\nEXPOSE http\n", 2, "port");
    check_refused("FROM a\nUSER a:b:c\n", 2, "user");
}

#[test]
fn what_is_unknown_is_refused_with_its_line() {
    check_refused("", 1, "no FROM");
    check_refused("RUN x\n", 1, "first instruction");
    check_refused("FROM a\n\nONBUILD RUN x\n", 3, "ONBUILD");
    check_refused("FROM a\nFORM b\n", 2, "FORM");
    check_refused("FROM a AS x\nFROM b AS x\n", 2, "name");
    check_refused("FROM a b c d\n", 1, "AS");
    check_refused("FROM Not/A/Name\n", 1, "image reference");
    check_refused("FROM a\nRUN\n", 2, "argument");
    check_refused("FROM a\nENV 1=2\n", 2, "name of a variable");
    check_refused("FROM a\nENV A=1 B\n", 2, "NAME=value");
    check_refused(&format!("FROM a\n{}", "ENV A=1\n".repeat(300)), 1, "256 steps");
    check_refused(&"FROM a\n".repeat(100), 65, "64 stages");
    check_refused(&"#\n".repeat(200_000), 1, "256 KiB");
    check_refused("FROM a\0", 1, "NUL");
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(
        text in "((FROM|RUN|COPY|ENV|ARG|ADD|EXPOSE|RUN --mount=|CMD|LABEL|#) ?[ -~\n\t\\\\]{0,40}\n){0,6}"
    ) {
        let _ = lower(&text, &[]);
    }

    #[test]
    fn no_word_makes_the_expansion_panic(text in "[$a{}:+?\"'\\\\ -]{0,40}") {
        let _ = words::expand(&text, '\\', &|_| Some("v".to_owned()));
    }
}
