//! The commands on logs of real brokers and on small logs made here: what they say, and their exit status.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::{batches, command, finish, listing, redrive, value, write_log};
use redrive_tests::corpus::{self, Case, MapEntry};
use redrive_tests::logs::TransactionValue;
use serde_json::{Value, json};

fn first_dir(case: &Case) -> &Path {
    &case.data_dirs[0]
}

/// A line of the list: Kafka's schema names for what the oracle calls by shorter ones.
fn expected_row(entry: &MapEntry) -> Value {
    let partitions: Vec<Value> = entry
        .partitions
        .iter()
        .flatten()
        .map(|(topic, ids)| json!({ "topic": topic, "partitionIds": ids }))
        .collect();
    json!({
        "partition": entry.partition,
        "offset": entry.offset,
        "valueVersion": entry.value_version,
        "transactionalId": entry.id,
        "producerId": entry.producer_id,
        "previousProducerId": entry.previous_producer_id,
        "nextProducerId": entry.next_producer_id,
        "producerEpoch": entry.producer_epoch,
        "nextProducerEpoch": entry.next_producer_epoch,
        "transactionTimeoutMs": entry.timeout_ms,
        "transactionStatus": entry.state,
        "transactionPartitions": partitions,
        "transactionLastUpdateTimestampMs": entry.last_update_ms,
        "transactionStartTimestampMs": entry.start_ms,
        "clientTransactionVersion": entry.client_transaction_version,
    })
}

#[test]
fn lists_equal_the_map_of_every_case() {
    let mut compared = 0;
    for case in corpus::cases() {
        let run =
            redrive(["list".as_ref(), first_dir(&case).as_os_str(), "--format".as_ref(), "ndjson".as_ref()]);
        let Some(mut map) = case.map() else {
            run.expect(3);
            continue;
        };
        map.sort_by(|a, b| (a.partition, a.id.as_bytes()).cmp(&(b.partition, b.id.as_bytes())));
        let rows = run.expect(0).lines();
        assert_eq!(rows.len(), map.len(), "{}", case.name);
        for (row, entry) in rows.iter().zip(&map) {
            assert_eq!(*row, expected_row(entry), "{}", case.name);
        }
        let document = redrive(["list", "--format", "json", "--", &first_dir(&case).to_string_lossy()]);
        let document = document.expect(0).json();
        assert_eq!(document["transactions"], Value::Array(rows), "{}", case.name);
        assert_eq!(document["refused"], json!([]));
        compared += 1;
    }
    assert!(compared >= 20, "{compared} cases with a map");
}

#[test]
fn replays_count_as_the_corpus_does() {
    let mut compared = 0;
    for case in corpus::cases() {
        let Some(counts) = case.info.get("transactionLog").filter(|counts| counts.is_object()) else {
            continue;
        };
        let run =
            redrive(["replay", "--format", "json", "--threads", "3", &first_dir(&case).to_string_lossy()]);
        let document = run.expect(0).json();
        let partitions = document["partitions"].as_array().expect("a list of partitions");
        let sum =
            |member: &str| partitions.iter().map(|p| p[member].as_u64().expect("a number")).sum::<u64>();
        for (theirs, ours) in [
            ("segments", "segments"),
            ("batches", "batches"),
            ("emptyBatches", "emptyBatches"),
            ("records", "records"),
            ("tombstoneRecords", "tombstones"),
            ("offsetGaps", "gaps"),
            ("idsInMap", "ids"),
        ] {
            // The corpus counts gaps between records, the engine those between batches.
            if theirs == "offsetGaps" && counts["batches"] != counts["records"] {
                continue;
            }
            if let Some(expected) = counts.get(theirs).and_then(Value::as_u64) {
                assert_eq!(sum(ours), expected, "{theirs} of {}", case.name);
                if document.get(ours).is_some() {
                    assert_eq!(document[ours], expected, "{theirs} of {}", case.name);
                }
                compared += 1;
            }
        }
        let by_state = document["byState"].as_object().expect("counts by state");
        assert_eq!(by_state.len(), 8);
        let mut expected = counts["idsPerState"].as_object().expect("ids per state").clone();
        for (state, ids) in by_state {
            assert_eq!(*ids, expected.remove(state).unwrap_or(json!(0)), "{state} of {}", case.name);
        }
        assert!(expected.is_empty(), "{expected:?}");
        let pending =
            by_state["PrepareCommit"].as_u64().unwrap() + by_state["PrepareAbort"].as_u64().unwrap();
        assert_eq!(document["pendingCompletion"], pending);
        assert_eq!(document["partitionsLoaded"], partitions.len());
        assert_eq!(document["partitionsRefused"], 0);
    }
    assert!(compared > 100, "{compared} counts compared");
}

#[test]
fn the_members_of_a_line_stand_in_their_order() {
    let run =
        redrive(["list", "--limit", "1", "--format", "ndjson", "--state", "ongoing", &plain()]).expect(0);
    let members = [
        "partition",
        "offset",
        "valueVersion",
        "transactionalId",
        "producerId",
        "previousProducerId",
        "nextProducerId",
        "producerEpoch",
        "nextProducerEpoch",
        "transactionTimeoutMs",
        "transactionStatus",
        "transactionPartitions",
        "transactionLastUpdateTimestampMs",
        "transactionStartTimestampMs",
        "clientTransactionVersion",
    ];
    let places: Vec<_> = members.iter().map(|member| run.text().find(&format!("\"{member}\":"))).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{}", run.text());
}

fn plain() -> String {
    corpus::plain_data_dir().to_string_lossy().into_owned()
}

#[test]
fn the_summary_says_what_an_operator_needs() {
    let run = redrive(["replay", &plain()]).expect(0);
    for part in [
        "__transaction_state  50 partitions",
        "loaded 50 of 50 partitions in",
        "ids 5,000    records 39,681 (87 % superseded)",
        "pending completion  none",
        "Ongoing 16 · oldest ",
    ] {
        assert!(run.text().contains(part), "{part:?} in {}", run.text());
    }
    let prepared = corpus::case("txn-state-prepared");
    let dir = first_dir(&prepared).to_string_lossy().into_owned();
    let run = redrive(["replay", &dir]).expect(0);
    assert!(run.text().contains("PrepareCommit 12 · PrepareAbort 18"), "{}", run.text());
    let command =
        run.text().lines().find(|line| line.contains("redrive list")).expect("a command to go on with");
    assert!(command.contains("--state PrepareCommit --state PrepareAbort"), "{command}");
    let list =
        redrive(["list", "--state", "PrepareCommit", "--state", "PrepareAbort", "--format", "ndjson", &dir]);
    assert_eq!(list.expect(0).lines().len(), 30);
    let run = redrive(["replay", "--format", "ndjson", &plain()]).expect(0);
    assert_eq!(run.lines().len(), 50);
}

#[test]
fn a_forgiven_tail_is_shown_and_is_nothing_wrong() {
    let case = corpus::case("unclean-torn-txn-state");
    let dir = first_dir(&case).to_string_lossy().into_owned();
    let run = redrive(["replay", &dir]).expect(0);
    assert!(run.text().contains("torn tail") && run.text().contains("byte 137,005"), "{}", run.text());
    let tail =
        redrive(["replay", "--format", "json", &dir]).expect(0).json()["partitions"][0]["tail"].clone();
    assert_eq!(
        (&tail["offset"], &tail["position"], &tail["bytes"]),
        (&json!(1074), &json!(137_005), &json!(70))
    );
    let run = redrive(["describe", &dir, "id-0", "--history", "--format", "ndjson"]).expect(0);
    assert!(run.stderr.contains("torn append"), "{}", run.stderr);
    assert!(!run.lines().is_empty());
}

/// Three ids in partition 0; in partition 1 the second of three batches has a wrong CRC.
fn damaged(root: &Path) -> u64 {
    write_log(root, 0, &batches(&[(b"a", Some(value(1))), (b"b", Some(value(2))), (b"c", Some(value(4)))]));
    let mut second = batches(&[(b"d", Some(value(0))), (b"e", Some(value(3))), (b"f", Some(value(5)))]);
    let position = second[0].encode().len() as u64;
    second[1].crc_flip = 1;
    write_log(root, 1, &second);
    position
}

#[test]
fn a_refused_partition_is_named_with_its_place() {
    let root = tempfile::tempdir().unwrap();
    let position = damaged(root.path());
    let dir = root.path().to_str().unwrap();
    let path = root.path().join("__transaction_state-1/00000000000000000000.log");
    let path = fs::canonicalize(path).unwrap().to_str().unwrap().to_owned();

    let document = redrive(["replay", "--format", "json", dir]).expect(1).json();
    assert_eq!((&document["partitionsLoaded"], &document["partitionsRefused"]), (&json!(1), &json!(1)));
    assert_eq!(document["ids"], 3, "a refused partition gives none");
    let refused = &document["partitions"][1];
    assert_eq!((&refused["partition"], &refused["outcome"]), (&json!(1), &json!("refused")));
    let error = &refused["error"];
    assert_eq!((&error["kind"], &error["path"]), (&json!("corrupt"), &json!(path)));
    assert_eq!((&error["offset"], &error["position"]), (&json!(1), &json!(position)));
    assert_eq!(error["transactionalId"], "e");
    assert!(error["reason"].as_str().unwrap().starts_with("CRC does not match: stored 0x"), "{error}");
    assert!(error["broker"].as_str().unwrap().contains("a broker"), "{error}");

    let text = redrive(["replay", dir]).expect(1);
    for part in ["loaded 1 of 2", "__transaction_state-1  CRC does not match", &path, "transactional id e"] {
        assert!(text.text().contains(part), "{part:?} in {}", text.text());
    }
    assert!(text.text().contains(&format!("offset 1  byte {position}")), "{}", text.text());

    let list = redrive(["list", "--format", "ndjson", dir]).expect(1);
    assert_eq!(ids(&list.lines()), ["a", "b", "c"]);
    assert_eq!(list.stderr.lines().count(), 1, "{}", list.stderr);
    assert!(
        list.stderr.starts_with("redrive: __transaction_state-1 was refused: ")
            && list.stderr.contains(&path)
    );
    let list = redrive(["list", "--format", "json", dir]).expect(1).json();
    assert_eq!(list["refused"][0]["error"]["position"], position);

    let run = redrive(["describe", dir, "d"]).expect(1);
    assert!(run.stderr.contains("partitions were refused that may hold it"), "{}", run.stderr);
    let run = redrive(["describe", dir, "a"]).expect(1);
    assert!(run.text().contains("Ongoing"));
    let run = redrive(["describe", dir, "d", "f", "--history", "--format", "ndjson"]).expect(1);
    assert_eq!(ids(&run.lines()), ["d"], "a history ends where the log is damaged");

    let lenient = redrive(["replay", "--lenient", "--format", "json", dir]).expect(1).json();
    assert_eq!((&lenient["lenient"], &lenient["ids"]), (&json!(true), &json!(5)));
    assert_eq!(lenient["partitions"][1]["skipped"]["batches"], 1);
    assert_eq!(lenient["partitions"][1]["skipped"]["places"][0]["position"], position);
    assert!(
        redrive(["replay", "--lenient", dir]).expect(1).text().contains("skipped      __transaction_state-1")
    );
    redrive(["replay", "--partition", "0", dir]).expect(0);
}

fn ids(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| row["transactionalId"].as_str().expect("an id")).collect()
}

#[test]
fn filters_keep_what_they_say() {
    let root = tempfile::tempdir().unwrap();
    let now_ms = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    const HOUR_MS: i64 = 3_600_000;
    let started = |status, producer_id, start_ms: i64| TransactionValue {
        producer_id,
        start_timestamp_ms: start_ms,
        last_update_timestamp_ms: now_ms,
        ..value(status)
    };
    let never = TransactionValue { last_update_timestamp_ms: now_ms - 5 * HOUR_MS, ..value(0) };
    write_log(
        root.path(),
        0,
        &batches(&[
            (b"pay-2", Some(started(1, 7, now_ms - 3 * HOUR_MS))),
            (b"pay-1", Some(started(2, 8, now_ms - HOUR_MS))),
            (b"etl", Some(started(4, 9, now_ms + HOUR_MS))),
            (b"gone", Some(value(1))),
            (b"gone", None),
        ]),
    );
    write_log(root.path(), 1, &batches(&[(b"idle", Some(never))]));
    let dir = root.path().to_str().unwrap();
    let listed = |filters: &[&str]| {
        let run = redrive(["list", "--format", "ndjson", dir].iter().chain(filters)).expect(0);
        ids(&run.lines()).join(" ")
    };
    assert_eq!(listed(&[]), "etl pay-1 pay-2 idle");
    assert_eq!(listed(&["--state", "ONGOING"]), "pay-2");
    assert_eq!(listed(&["--state", "Empty", "--state", "PrepareCommit"]), "pay-1 idle");
    assert_eq!(listed(&["--id-pattern", "pay-."]), "pay-1 pay-2");
    assert_eq!(listed(&["--id-pattern", "pay"]), "");
    assert_eq!(listed(&["--producer-id", "9"]), "etl");
    assert_eq!(listed(&["--topic-partition", "orders-3"]), "pay-1 pay-2");
    assert_eq!(listed(&["--topic-partition", "orders-1"]), "");
    assert_eq!(listed(&["--older-than", "2h"]), "pay-2 idle");
    assert_eq!(listed(&["--older-than", "30m"]), "pay-1 pay-2 idle");
    assert_eq!(listed(&["--partition", "1"]), "idle");
    assert_eq!(listed(&["--limit", "2"]), "etl pay-1");
    assert_eq!(listed(&["--limit", "0"]), "");
    assert_eq!(listed(&["--state", "ongoing", "--older-than", "4h"]), "");
    let table = redrive(["list", dir]).expect(0);
    let first = table.text().lines().nth(1).unwrap();
    assert_eq!(
        first.split_whitespace().collect::<Vec<_>>()[..6],
        ["0", "2", "CompleteCommit", "9", "0", "in"]
    );
    assert!(table.text().ends_with("4 of 4 ids\n"));
}

#[test]
fn described_ids_show_all_fields_and_their_history() {
    let root = tempfile::tempdir().unwrap();
    let tagged = TransactionValue { tags: vec![(9, b"new".to_vec())], ..value(1) };
    let path = write_log(
        root.path(),
        0,
        &batches(&[(b"a", Some(value(0))), (b"gone", Some(value(0))), (b"a", Some(tagged)), (b"gone", None)]),
    );
    let dir = root.path().to_str().unwrap();
    let run = redrive(["describe", dir, "a"]).expect(0);
    for part in [
        "Ongoing",
        "orders-0,3",
        "producer id                 1000",
        "1 min (60000 ms)",
        "tag 9, base64 bmV3",
    ] {
        assert!(run.text().contains(part), "{part:?} in {}", run.text());
    }
    let document = redrive(["describe", dir, "a", "b", "--format", "json"]).expect(1).json();
    assert_eq!(document["transactions"][0]["unknownTaggedFields"], json!([{ "tag": 9, "data": "bmV3" }]));
    assert_eq!(document["missing"], json!([{ "transactionalId": "b" }]));
    let run = redrive(["describe", dir, "b"]).expect(1);
    assert_eq!(run.stderr, "redrive: there is no transactional id b\n");

    let history =
        redrive(["describe", dir, "a", "gone", "--history", "--format", "ndjson"]).expect(0).lines();
    let seen: Vec<_> = history
        .iter()
        .map(|row| (row["offset"].as_i64(), row["tombstone"].as_bool(), row["transactionStatus"].as_str()))
        .collect();
    assert_eq!(
        seen,
        [
            (Some(0), Some(false), Some("Empty")),
            (Some(2), Some(false), Some("Ongoing")),
            (Some(1), Some(false), Some("Empty")),
            (Some(3), Some(true), None),
        ]
    );
    assert_eq!(history[0]["path"], fs::canonicalize(path).unwrap().to_str().unwrap());
    assert_eq!(history[0]["position"], 0);
    assert_eq!(history[0]["timestamp"], 1_700_000_000_000_i64);
    let text = redrive(["describe", dir, "gone", "--history"]).expect(0);
    assert!(text.text().contains("tombstone") && text.text().contains("not in the map"), "{}", text.text());
    let document = redrive(["describe", dir, "gone", "--history", "--format", "json"]).expect(0).json();
    assert_eq!((document["history"].as_array().unwrap().len(), &document["transactions"]), (2, &json!([])));
}

#[test]
fn histories_end_in_the_state_that_the_list_shows() {
    let rows = redrive(["list", "--format", "ndjson", "--partition", "7", &plain()]).expect(0).lines();
    let wanted: Vec<_> = ids(&rows).into_iter().take(20).collect();
    let args = ["describe", "--partition", "7", "--history", "--format", "ndjson", &plain()];
    let history = redrive(args.iter().chain(&wanted)).expect(0).lines();
    for row in rows.iter().take(20) {
        let last = history.iter().rfind(|record| record["transactionalId"] == row["transactionalId"]);
        let last = last.expect("a record of every id");
        for member in row.as_object().unwrap().keys() {
            assert_eq!(last[member], row[member], "{member} of {row}");
        }
    }
    assert!(history.len() > 20, "{} records", history.len());
}

#[test]
fn bad_usage_is_2() {
    let dir = plain();
    for args in [
        vec![],
        vec!["nonsense"],
        vec!["replay"],
        vec!["replay", "--threads", "0", &dir],
        vec!["replay", "--io", "fastest", &dir],
        vec!["replay", "--partition", "-1", &dir],
        vec!["list", "--state", "Open", &dir],
        vec!["list", "--id-pattern", "(", &dir],
        vec!["list", "--older-than", "soon", &dir],
        vec!["list", "--topic-partition", "orders", &dir],
        vec!["describe", &dir],
        vec!["completions", "dos"],
        vec!["man", "nonsense"],
    ] {
        let run = redrive(&args).expect(2);
        assert!(run.stdout.is_empty() && !run.stderr.is_empty(), "{args:?}");
    }
    for args in [vec!["--help"], vec!["--version"], vec!["list", "--help"], vec!["help", "replay"]] {
        let run = redrive(&args).expect(0);
        assert!(!run.stdout.is_empty() && run.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn input_that_cannot_be_read_is_3() {
    let root = tempfile::tempdir().unwrap();
    let empty = root.path().to_str().unwrap();
    let missing = root.path().join("missing");
    let file = root.path().join("file");
    fs::write(&file, "text").unwrap();
    let (missing, file, dir) = (missing.to_str().unwrap(), file.to_str().unwrap(), plain());
    for (args, part) in [
        (vec!["replay", missing], "missing"),
        (vec!["replay", empty], "is no log directory of Kafka"),
        (vec!["replay", file], "file"),
        (
            vec!["list", &dir, "--partition", "7", "--partition", "99"],
            "no partition 99 of topic \"__transaction_state\" in",
        ),
        (vec!["replay", "--partition", "99", "--partition", "50", &dir], "no partitions 50, 99 of topic"),
        (vec!["list", &dir, "--topic", "orders"], "\"orders\""),
        (vec!["describe", missing, "a"], "missing"),
        (vec!["dump", "--files", missing], "missing"),
    ] {
        let run = redrive(&args).expect(3);
        assert!(run.stderr.contains(part), "{part:?} in {}", run.stderr);
        assert!(args[0] == "dump" || run.stderr.starts_with("redrive: ") && run.stderr.lines().count() == 1);
        assert!(args[0] == "dump" || run.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn output_that_cannot_be_written_is_3() {
    let dir = plain();
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for args in [vec!["replay", &dir], vec!["list", &dir], vec!["man"]] {
        let output = command().args(&args).stdout(full()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{stderr}");
        assert!(stderr.starts_with("redrive: cannot write to standard output: "), "{stderr}");
    }
}

#[test]
fn several_directories_and_single_partitions_are_read() {
    let root = tempfile::tempdir().unwrap();
    let (one, two) = (root.path().join("one"), root.path().join("two"));
    write_log(&one, 0, &batches(&[(b"a", Some(value(1)))]));
    write_log(&two, 1, &batches(&[(b"b", Some(value(1)))]));
    let (one, two) = (one.to_str().unwrap(), two.to_str().unwrap());
    let rows = redrive(["list", "--format", "ndjson", one, two, one]).expect(0).lines();
    assert_eq!(ids(&rows), ["a", "b"]);
    let rows = redrive(["describe", "--log-dir", two, "--format", "ndjson", one, "b", "a"]).expect(0).lines();
    assert_eq!(ids(&rows), ["b", "a"]);
    let single = format!("{two}/__transaction_state-1");
    assert_eq!(redrive(["replay", "--format", "json", &single]).expect(0).json()["ids"], 1);
}

#[test]
fn nothing_in_the_directory_is_changed() {
    let root = tempfile::tempdir().unwrap();
    let case = corpus::case("unclean-torn-txn-state");
    let dir = case.copy_to(root.path()).unwrap().remove(0);
    let log = dir.join("__transaction_state-0/00000000000000000000.log");
    let before = listing(root.path());
    let (dir, log) = (dir.to_str().unwrap(), log.to_str().unwrap());
    for args in [
        vec!["replay", dir],
        vec!["replay", "--lenient", "--io", "pread", dir],
        vec!["list", dir],
        vec!["describe", "--history", dir, "id-1"],
        vec!["dump", "--files", log, "--transaction-log-decoder"],
        vec!["dump", "--files", &log.replace(".log", ".timeindex")],
    ] {
        let run = finish(command().args(&args).current_dir(root.path()));
        assert!(run.code.is_some_and(|code| code < 2), "{args:?}: {}", run.stderr);
    }
    assert_eq!(listing(root.path()), before);
}

#[test]
fn completions_and_pages_come_from_the_command_line() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let run = redrive(["completions", shell]).expect(0);
        assert!(run.text().contains("older-than"), "{shell}");
    }
    let page = redrive(["man", "list"]).expect(0);
    assert!(page.text().contains(".TH") && page.text().contains("older\\-than"));
    let root = tempfile::tempdir().unwrap();
    let out = root.path().join("man");
    let run = redrive(["man", "--out", out.to_str().unwrap()]).expect(0);
    assert!(run.stdout.is_empty());
    let names: Vec<_> = listing(&out).into_iter().map(|(path, ..)| path).collect();
    let expected = [
        "completions",
        "describe",
        "dump",
        "generate",
        "list",
        "man",
        "profile",
        "recover",
        "replay",
        "verify",
    ];
    let mut expected: Vec<_> = expected.iter().map(|name| out.join(format!("redrive-{name}.1"))).collect();
    expected.push(out.join("redrive.1"));
    assert_eq!(names, expected);
}
