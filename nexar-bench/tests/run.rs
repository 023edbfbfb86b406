//! `nexar-run` with shell scripts as ranks.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "helpers of tests count as tests")]

mod common;

use common::{Running, line, lines, output, runs, script, sorted, wait_for_end};
use rustix::process::Signal;

/// Waits for signals in a shell: `wait` is interrupted by a trap, unlike a command in the foreground.
const WAIT: &str = "sleep 1000 >/dev/null 2>&1 & sleeper=$!; echo ready; wait $sleeper";

#[test]
fn every_rank_gets_its_environment_and_lines_their_prefix() {
    let run = script(
        &["-n", "3", "--env", "COLOUR=blue"],
        "echo $NEXAR_RANK of $NEXAR_WORLD_SIZE $NEXAR_SEED_ROLE $COLOUR; printf 'no newline'",
    );
    let (status, mut stdout, stderr) = Running::start(run).finish();
    stdout.sort();
    assert_eq!(
        stdout,
        [
            "[0] 0 of 3 join blue",
            "[0] no newline",
            "[1] 1 of 3 join blue",
            "[1] no newline",
            "[2] 2 of 3 join blue",
            "[2] no newline",
        ]
    );
    assert!(status.success(), "{stderr:?}");
    assert_eq!(stderr, [""; 0]);
}

#[test]
fn errors_are_prefixed_and_stay_on_standard_error() {
    let run = script(&["-n", "2"], "echo trouble >&2").output().unwrap();
    let mut stderr = lines(&run.stderr);
    stderr.sort();
    assert_eq!(stderr, ["[0] trouble", "[1] trouble"]);
    assert!(run.stdout.is_empty());
}

#[test]
fn lines_of_ranks_are_never_mixed() {
    let text = "case $NEXAR_RANK in 0) c=aaaa;; 1) c=bbbb;; 2) c=cccc;; esac
        i=0; while [ $i -lt 3000 ]; do echo $c$c$c$c$c$c$c$c; i=$((i + 1)); done";
    let run = script(&["-n", "3"], text).output().unwrap();
    let stdout = lines(&run.stdout);
    assert_eq!(stdout.len(), 9000);
    for (prefix, letter) in [("[0] ", "a"), ("[1] ", "b"), ("[2] ", "c")] {
        let expected = format!("{prefix}{}", letter.repeat(32));
        assert_eq!(
            stdout.iter().filter(|line| **line == expected).count(),
            3000
        );
    }
}

#[test]
fn transports_are_given_in_turn() {
    let run = script(
        &["-n", "2", "--transport", "quinn"],
        "echo $NEXAR_TRANSPORT",
    );
    assert_eq!(lines(&{ run }.output().unwrap().stdout).len(), 2);
    let run = output(
        common::RUN,
        &["-n", "2", "--transport", "tcp", "--", "true"],
    );
    assert_eq!(run.status.code(), Some(2));
    assert!(lines(&run.stderr).join(" ").contains("quinn"));
}

#[test]
fn the_exit_status_is_that_of_the_first_failure() {
    let status = |text: &str| script(&["-n", "3"], text).output().unwrap().status.code();
    assert_eq!(status("[ $NEXAR_RANK != 1 ] || exit 7"), Some(7));
    assert_eq!(status("[ $NEXAR_RANK != 2 ] || kill -9 $$"), Some(137));
    assert_eq!(status("true"), Some(0));
}

#[test]
fn a_program_that_does_not_exist_is_named() {
    let run = output(common::RUN, &["-n", "2", "--", "/nonexistent/program"]);
    assert_eq!(run.status.code(), Some(2));
    assert!(
        lines(&run.stderr)
            .join(" ")
            .contains("/nonexistent/program")
    );
}

/// `nexar-run` under limits on open files, set by a shell.
fn limited(ulimits: &str, ranks: &str) -> std::process::Output {
    let text = format!("{ulimits} && exec \"$0\" -n {ranks} -- sh -c 'ulimit -Sn'");
    let mut command = common::command("sh", &["-c", &text]);
    command.arg(common::RUN).output().unwrap()
}

#[test]
fn the_launcher_raises_its_limit_of_open_files_but_not_that_of_the_ranks() {
    let run = limited("ulimit -Sn 64", "32");
    let mut expected: Vec<String> = (0..32).map(|rank| format!("[{rank}] 64")).collect();
    expected.sort();
    let mut stdout = lines(&run.stdout);
    stdout.sort();
    assert_eq!(stdout, expected, "{:?}", lines(&run.stderr));
    assert!(run.status.success());
}

#[test]
fn a_limit_of_open_files_that_is_too_low_is_named() {
    let run = limited("ulimit -n 64", "32");
    assert_eq!(run.status.code(), Some(2));
    let stderr = lines(&run.stderr).join(" ");
    assert!(
        stderr.contains("64 open files, 32 ranks need about 120") && stderr.contains("ulimit -n"),
        "{stderr}"
    );
}

#[test]
fn the_secret_is_fresh_and_on_no_command_line() {
    let secrets = || {
        let mut run = script(
            &["-n", "2"],
            "echo secret=$NEXAR_SECRET; for pid in $$ $PPID; do
                printf command=; tr '\\0' ' ' < /proc/$pid/cmdline | tr '\\n' ' '; echo
            done",
        );
        run.env("NEXAR_SECRET", "the secret of another group")
            .env("NEXAR_CERT", "cert.pem");
        let stdout = lines(&run.output().unwrap().stdout);
        let part = |name: &str| -> Vec<String> {
            stdout
                .iter()
                .filter_map(|line| Some(line.split_once(name)?.1.to_owned()))
                .collect()
        };
        let (secrets, commands) = (part("] secret="), part("] command="));
        assert_eq!((secrets.len(), commands.len()), (2, 4), "{stdout:?}");
        assert_eq!((secrets[0].len(), &secrets[0]), (64, &secrets[1]));
        assert!(commands.iter().any(|command| command.contains("nexar-run")));
        assert!(!commands.iter().any(|command| command.contains(&secrets[0])));
        secrets[0].clone()
    };
    assert_ne!(secrets(), secrets());
}

#[test]
fn signals_reach_all_ranks() {
    for (signal, name) in [
        (Signal::INT, "INT"),
        (Signal::TERM, "TERM"),
        (Signal::HUP, "HUP"),
    ] {
        let text = format!("trap 'echo got {name}; kill $sleeper; exit 9' {name}; {WAIT}");
        let mut run = Running::start(script(&["-n", "2"], &text));
        assert_eq!(sorted(&mut run.stdout, 2), ["[0] ready", "[1] ready"]);
        run.signal(signal);
        let (status, mut stdout, stderr) = run.finish();
        stdout.sort();
        assert_eq!(
            stdout,
            [format!("[0] got {name}"), format!("[1] got {name}")],
            "{stderr:?}"
        );
        assert_eq!(status.code(), Some(9));
    }
}

#[test]
fn a_second_interrupt_kills() {
    let text = format!("trap 'echo got it' INT; {WAIT}; while :; do wait $sleeper; done");
    let mut run = Running::start(script(&["-n", "2"], &text));
    assert_eq!(sorted(&mut run.stdout, 2), ["[0] ready", "[1] ready"]);
    run.signal(Signal::INT);
    assert_eq!(sorted(&mut run.stdout, 2), ["[0] got it", "[1] got it"]);
    run.signal(Signal::INT);
    assert_eq!(run.finish().0.code(), Some(137));
}

#[test]
fn ranks_that_hang_after_a_failure_are_stopped() {
    // Rank 1 ends when asked to, rank 2 has to be killed.
    let text = "case $NEXAR_RANK in
        0) echo failing; exit 3;;
        1) echo pid $$; exec sleep 1000;;
        2) trap '' TERM; echo pid $$; exec sleep 1000;;
    esac";
    let run = Running::start(script(&["-n", "3", "--grace", "1"], text));
    let (status, stdout, stderr) = run.finish();
    assert_eq!(status.code(), Some(3), "{stderr:?}");
    let pids: Vec<u32> = stdout
        .iter()
        .filter_map(|line| line.split_once("pid ")?.1.parse().ok())
        .collect();
    assert_eq!(pids.len(), 2, "{stdout:?}");
    assert!(!pids.into_iter().any(runs));
    let stderr = stderr.join("\n");
    assert!(
        stderr.contains("rank 0 failed (exit status: 3)"),
        "{stderr}"
    );
    assert!(stderr.contains("stopping 2 ranks"), "{stderr}");
    assert!(stderr.contains("killing 1 rank"), "{stderr}");
}

#[test]
fn ranks_that_end_by_themselves_after_a_failure_are_let_to() {
    // Rank 1 fails once rank 0 has gone, as a rank that notices a lost peer does.
    let file = std::env::temp_dir().join(format!("nexar-run-{}", std::process::id()));
    let text = "[ $NEXAR_RANK = 1 ] || { echo $$ > $FILE.new; mv $FILE.new $FILE; exit 4; }
        while ! [ -e $FILE ]; do sleep 0.01; done
        while kill -0 $(cat $FILE) 2> /dev/null; do sleep 0.01; done
        echo lost a peer >&2; exit 5";
    let mut run = script(&["-n", "2", "--grace", "1000"], text);
    let run = run.env("FILE", &file).output().unwrap();
    std::fs::remove_file(file).unwrap();
    let stderr = lines(&run.stderr);
    assert_eq!(run.status.code(), Some(4), "{stderr:?}");
    assert!(stderr.contains(&"[1] lost a peer".to_owned()), "{stderr:?}");
}

#[test]
fn ranks_die_with_the_launcher() {
    let mut run = Running::start(script(&["-n", "2"], "echo $$; exec sleep 1000"));
    let pids: Vec<u32> = sorted(&mut run.stdout, 2)
        .iter()
        .map(|line| line.split_once("] ").unwrap().1.parse().unwrap())
        .collect();
    assert!(pids.iter().all(|pid| runs(*pid)));
    run.signal(Signal::KILL);
    run.wait();
    pids.into_iter().for_each(wait_for_end);
}

#[test]
fn ranks_that_do_not_join_are_reported() {
    let mut run = Running::start(script(&["-n", "2", "--timeout", "0.2"], "exec sleep 1000"));
    let message = line(&mut run.stderr);
    assert!(
        message.contains("[0, 1]") && message.contains("0.2 s"),
        "{message}"
    );
    run.signal(Signal::TERM);
    assert_eq!(run.finish().0.code(), Some(143));
}

#[test]
fn a_closed_output_ends_the_ranks() {
    let mut run = Running::start(script(&["-n", "1"], "exec yes"));
    assert_eq!(line(&mut run.stdout), "[0] y");
    assert_eq!(run.wait().code(), Some(128 + 13));
}
