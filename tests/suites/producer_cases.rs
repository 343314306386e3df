//! Rows of the chapter on logs about producers: idempotence, markers, verification, snapshots, the last stable offset. Each
//! is a list of steps; steps and right results are data, in `fixtures/cases/producer.json`.

mod producer_steps;

use producer_steps::{offsets, row, run};
use redrive::producer_state::{
    ProducerEntry, ProducerSnapshot, ProducerStateManager, clean_start_snapshots, gets_snapshot_on_rebuild,
    snapshots_outside, stray_snapshots,
};
use redrive::types::{Offset, ProducerId};

#[test]
fn c03_r111_a_gap_in_the_sequence_is_refused() {
    run("c03_r111");
}

#[test]
fn c03_r112_a_sequence_goes_on_or_begins_with_an_epoch() {
    run("c03_r112");
}

#[test]
fn c03_r113_an_older_epoch_is_fenced() {
    run("c03_r113");
}

#[test]
fn c03_r114_five_batches_are_found_again() {
    run("c03_r114");
}

#[test]
fn c03_r115_the_newest_batch_again_changes_nothing() {
    run("c03_r115");
}

#[test]
fn c03_r116_zero_follows_the_largest_sequence() {
    run("c03_r116");
}

#[test]
fn c03_r117_a_batch_across_the_largest_sequence() {
    run("c03_r117");
}

#[test]
fn c03_r118_a_replicated_batch_begins_anywhere() {
    run("c03_r118");
}

#[test]
fn c03_r119_a_replicated_batch_may_leave_a_gap() {
    run("c03_r119");
}

#[test]
fn c03_r120_an_unknown_producer_begins_anywhere() {
    run("c03_r120");
}

#[test]
fn c03_r121_a_verified_producer_begins_at_zero() {
    run("c03_r121");
}

#[test]
fn c03_r122_a_verified_producer_of_old_begins_where_it_said() {
    run("c03_r122");
}

#[test]
fn c03_r123_an_epoch_begins_at_zero() {
    run("c03_r123");
}

#[test]
fn c03_r124_a_marker_alone_sets_the_epoch() {
    run("c03_r124");
}

#[test]
fn c03_r125_an_expired_producer_is_unknown() {
    run("c03_r125");
}

#[test]
fn c03_r126_an_analysis_that_is_dropped_changes_nothing() {
    run("c03_r126");
}

#[test]
fn c03_r127_several_producers_in_a_call() {
    run("c03_r127");
}

#[test]
fn c03_r128_coordinators_have_no_sequences() {
    run("c03_r128");
}

#[test]
fn c03_r129_records_that_are_gone_count() {
    run("c03_r129");
}

#[test]
fn c03_r130_an_emptied_batch_counts() {
    run("c03_r130");
}

#[test]
fn c03_r131_a_truncation_without_snapshots() {
    run("c03_r131");
}

#[test]
fn c03_r132_a_commit_ends_a_transaction() {
    run("c03_r132");
}

#[test]
fn c03_r133_an_abort_may_raise_the_epoch() {
    run("c03_r133");
}

#[test]
fn c03_r134_after_a_raised_epoch_zero_comes() {
    run("c03_r134");
}

#[test]
fn c03_r135_a_marker_of_an_older_epoch() {
    run("c03_r135");
}

#[test]
fn c03_r136_a_marker_of_the_same_epoch() {
    run("c03_r136");
}

#[test]
fn c03_r137_a_marker_of_a_newer_epoch() {
    run("c03_r137");
}

#[test]
fn c03_r138_a_marker_that_is_sent_again() {
    run("c03_r138");
}

#[test]
fn c03_r139_a_marker_without_a_version() {
    run("c03_r139");
}

#[test]
fn c03_r140_an_older_coordinator_is_fenced() {
    run("c03_r140");
}

#[test]
fn c03_r141_an_older_coordinator_is_fenced_after_a_reload() {
    run("c03_r141");
}

#[test]
fn c03_r142_an_older_coordinator_is_fenced_without_a_transaction() {
    run("c03_r142");
}

#[test]
fn c03_r143_an_expired_coordinator_epoch() {
    run("c03_r143");
}

#[test]
fn c03_r144_a_batch_outside_of_an_open_transaction() {
    run("c03_r144");
}

#[test]
fn c03_r145_many_markers_in_a_call() {
    run("c03_r145");
}

#[test]
fn c03_r146_an_emptied_control_batch() {
    run("c03_r146");
}

#[test]
fn c03_r147_a_guard_is_given_out_again() {
    run("c03_r147");
}

#[test]
fn c03_r148_a_guard_follows_sequence_and_epoch() {
    run("c03_r148");
}

#[test]
fn c03_r149_a_sequence_above_the_lowest_verified() {
    run("c03_r149");
}

#[test]
fn c03_r150_a_transaction_needs_its_guard() {
    run("c03_r150");
}

#[test]
fn c03_r151_an_open_transaction_needs_no_guard() {
    run("c03_r151");
}

#[test]
fn c03_r152_an_idempotent_append_keeps_the_guard() {
    run("c03_r152");
}

#[test]
fn c03_r153_a_marker_voids_the_guard() {
    run("c03_r153");
}

#[test]
fn c03_r154_a_late_marker_keeps_the_guard_of_the_next() {
    run("c03_r154");
}

#[test]
fn c03_r155_without_verification_the_guard_goes() {
    run("c03_r155");
}

#[test]
fn c03_r156_a_guard_is_good_once() {
    run("c03_r156");
}

#[test]
fn c03_r157_a_fenced_producer_is_told_so() {
    run("c03_r157");
}

#[test]
fn c03_r158_a_guard_expires() {
    run("c03_r158");
}

#[test]
fn c03_r159_late_transactions() {
    run("c03_r159");
}

#[test]
fn c03_r160_no_snapshot_without_a_change() {
    run("c03_r160");
}

#[test]
fn c03_r161_snapshots_outside_of_the_log_go() {
    run("c03_r161");
}

#[test]
fn c03_r162_a_snapshot_with_an_open_transaction() {
    run("c03_r162");
}

#[test]
fn c03_r163_a_snapshot_after_an_abort() {
    run("c03_r163");
}

#[test]
fn c03_r164_a_snapshot_after_a_lone_marker() {
    run("c03_r164");
}

#[test]
fn c03_r165_a_snapshot_with_expired_producers() {
    run("c03_r165");
}

#[test]
fn c03_r166_a_snapshot_that_cannot_be_read() {
    run("c03_r166");
}

#[test]
fn c03_r172_truncations_and_snapshots() {
    run("c03_r172");
}

#[test]
fn c03_r173_a_full_truncation() {
    run("c03_r173");
}

#[test]
fn c03_r174_a_rebuild_to_each_of_two_snapshots() {
    run("c03_r174");
}

#[test]
fn c03_r180_an_idle_producer_expires() {
    run("c03_r180");
}

#[test]
fn c03_r181_an_open_transaction_never_expires() {
    run("c03_r181");
}

#[test]
fn c03_r182_data_outside_of_transactions_is_stable() {
    run("c03_r182");
}

#[test]
fn c03_r183_a_transaction_is_unstable_until_its_marker_is_replicated() {
    run("c03_r183");
}

#[test]
fn c03_r184_the_last_stable_offset_of_two_transactions() {
    run("c03_r184");
}

#[test]
fn c03_r186_last_stable_offsets_of_markers() {
    run("c03_r186");
}

#[test]
fn c03_r187_nothing_below_the_log_start_is_unstable() {
    run("c03_r187");
}

#[test]
fn c03_r191_a_transaction_that_is_truncated_away() {
    run("c03_r191");
}

#[test]
fn c03_r192_an_aborted_transaction_after_an_unclean_restart() {
    run("c03_r192");
}

/// Loads with these snapshots and segments: what is left of the snapshots.
fn load(name: &str) {
    let row = row(name);
    let mut snapshots = offsets(&row["snapshots"]);
    let bases = offsets(&row["bases"]);
    let stray = stray_snapshots(&snapshots, &bases);
    snapshots.retain(|offset| !stray.contains(offset));
    let offset = |member: &str| Offset(row[member].as_i64().expect("an offset"));
    let outside = snapshots_outside(&snapshots, offset("logStart"), offset("end"));
    snapshots.retain(|offset| !outside.contains(offset));
    assert_eq!(snapshots, offsets(&row["left"]), "{row}");
}

#[test]
fn c03_r167_a_stray_snapshot_below_a_segment_goes() {
    load("c03_r167");
}

#[test]
fn c03_r168_strays_below_the_last_segment_go() {
    load("c03_r168");
}

#[test]
fn c03_r169_of_strays_the_largest_is_left() {
    load("c03_r169");
}

#[test]
fn c03_r170_an_empty_log_has_no_snapshot() {
    load("c03_r170");
}

#[test]
fn the_worked_run_of_open_transactions() {
    run("worked_run");
}

#[test]
fn a_later_transaction_of_the_same_producer_holds_back_what_an_abort_says_is_stable() {
    run("later_transaction_of_the_same_producer");
}

#[test]
fn a_rebuild_takes_snapshots_at_the_last_two_segments() {
    let bases = [0, 10, 20, 30].map(Offset);
    let taken = bases.map(|base| gets_snapshot_on_rebuild(&bases, base));
    assert_eq!(taken, [false, false, true, true]);
    assert!(gets_snapshot_on_rebuild(&bases[..1], Offset(0)) && !gets_snapshot_on_rebuild(&[], Offset(0)));
}

#[test]
fn a_clean_start_without_a_snapshot_takes_some_at_once() {
    let bases = [0, 10, 20].map(Offset);
    assert_eq!(clean_start_snapshots(&bases, Offset(25)), [10, 20, 25].map(Offset));
    assert_eq!(clean_start_snapshots(&bases, Offset(20)), [10, 20].map(Offset));
    assert_eq!(clean_start_snapshots(&bases[..1], Offset(5)), [0, 5].map(Offset));
}

#[test]
fn where_no_producer_was_known_none_is_looked_for() {
    let mut state = ProducerStateManager::new(1000);
    state.set_map_end_offset(Offset(50));
    let reload = state.begin_reload(&[], Offset(0), Offset(40));
    assert_eq!(reload.replay_from(&state), None);
    state.set_map_end_offset(Offset(40));
    let reload = state.begin_reload(&[Offset(20), Offset(30), Offset(60)], Offset(0), Offset(50));
    assert_eq!(
        (reload.candidates.clone(), reload.outside.clone()),
        (vec![Offset(30), Offset(20)], vec![Offset(60)])
    );
    assert_eq!(reload.replay_from(&state), Some(Offset(0)));
}

#[test]
fn of_a_producer_that_is_twice_in_a_snapshot_the_last_counts() {
    let entry = |last_timestamp, open: Option<i64>| ProducerEntry {
        producer_id: ProducerId(7),
        producer_epoch: 0,
        last_batch: None,
        last_timestamp,
        coordinator_epoch: -1,
        current_txn_first_offset: open.map(Offset),
    };
    let snapshot = ProducerSnapshot { entries: vec![entry(1, Some(3)), entry(2, Some(5))] };
    let mut state = ProducerStateManager::new(1000);
    state.load_snapshot(&snapshot, Offset(9), 0);
    assert_eq!((state.len(), state.first_undecided_offset()), (1, Some(Offset(5))));
    assert_eq!(state.entry(ProducerId(7)).map(|entry| entry.last_timestamp()), Some(2));
}
