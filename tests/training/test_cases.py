"""Known ways that packing, resuming and adapters go wrong: the cases of sections 3, 5 and 7 of the
project's list, by number, and the tests that hold each to its right value.

C53 and C63 speak of what this version refuses or does not have (several ranks, merging), and their
tests say so.
"""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

HELD_BY: dict[str, dict[str, tuple[str, ...]]] = {
    "C28": {
        "training/test_packing_cases": (
            "test_c28_losses_packed_are_those_alone_and_nothing_crosses",
            "test_c28_planted_fault_one_document_of_two_is_seen",
        ),
        "training/test_attention": ("test_a_real_model_keeps_documents_apart",),
        "training/test_documents": ("test_equal_to_the_mask_with_its_gradients", "test_probe"),
    },
    "C29": {
        "packing/test_rows": ("test_c29_positions_and_documents_restart_at_each_document",),
        "training/test_batches": ("test_c29_c30_positions_reset_and_no_label_crosses",),
    },
    "C30": {
        "packing/test_rows": ("test_c30_no_label_crosses_a_boundary",),
        "training/test_batches": ("test_c29_c30_positions_reset_and_no_label_crosses",),
    },
    "C32": {
        "training/test_packing_cases": ("test_c32_a_leak_is_an_error_with_the_way_out",),
        "training/test_attention": (
            "test_a_leak_is_refused",
            "test_the_backend_named_is_the_one_the_layers_call",
            "test_states_that_are_not_finite_prove_nothing",
            "test_positions_that_run_on_are_caught_by_parity_alone",
            "test_a_probe_that_sees_nothing_is_refused",
        ),
        "training/test_train_stage": ("test_a_leaking_backend_stops_before_training",),
    },
    "C33": {
        "chat/test_limits": ("test_c33_one_over_long_row_loses_its_13_tokens_of_23",),
        "packing/test_bins": ("test_c33_worked_case_of_three_rows",),
        "packing/test_stats": ("test_row_stats",),
        "stages/test_pack": ("test_same_inputs_same_bytes_whatever_the_split_into_micro_batches",),
    },
    "C46": {
        "training/test_resume_cases": ("test_c46_ten_rows_three_epochs_stopped_after_step_7",),
        "training/test_resume": (
            "test_c46_rows_after_a_resume_are_the_rows_of_the_plan",
            "test_planted_fault_data_position_off_by_one",
        ),
    },
    "C48": {
        "training/test_checkpoint": ("test_all_random_states_come_back",),
        "training/test_resume": (
            "test_resume_is_exact",
            "test_planted_fault_random_states_not_restored",
        ),
    },
    "C49": {
        "training/test_checkpoint": (
            "test_c49_nothing_is_pickled",
            "test_c50_a_broken_checkpoint_is_passed_over_with_its_reason",
            "test_a_mixed_checkpoint_is_refused",  # an older format is of another identity
        ),
    },
    "C50": {
        "training/test_checkpoint": (
            "test_c50_a_broken_checkpoint_is_passed_over_with_its_reason",
            "test_c50_none_complete_is_an_error_not_a_silent_restart",
            "test_a_disk_that_fills_up_in_a_write_is_a_finding_and_leaves_nothing_half",
        ),
        "training/test_resume": ("test_a_broken_newest_checkpoint_costs_steps_but_no_bits",),
    },
    "C51": {
        "training/test_resume_cases": ("test_c51_best_at_200_of_400_is_kept",),
        "training/test_checkpoint": (
            "test_c51_order_is_numeric_and_the_best_is_kept",
            "test_c51_keep_one_keeps_10000_not_9900",
        ),
        "training/test_loop": ("test_the_best_checkpoint_becomes_the_adapter",),
        "spec/test_pins": ("test_each_loose_end_is_named_by_field",),
    },
    "C53": {
        "training/test_resume_cases": ("test_c53_the_position_is_one_of_rows",),
        "packing/test_steps": ("test_the_split_into_micro_batches_and_ranks_changes_nothing",),
        "spec/test_load_spec": ("test_wrong_types_and_ranges_are_refused_by_field",),
        "training/test_train_stage": ("test_what_decides_the_bits_changes_the_identity",),
    },
    "C55": {
        "training/test_resume_cases": ("test_c55_a_resumed_run_reaches_every_step_of_its_plan",),
        "training/test_loop": (
            "test_a_stop_ends_with_a_checkpoint_between_the_cadence",
            "test_killed_after_the_last_checkpoint_trains_nothing_again",
        ),
    },
    "C62": {
        "training/test_adapter_cases": (
            "test_c62_a_head_is_tied_after_the_reload_as_it_was_before",
            "test_c62_embedding_and_head_are_no_targets",
        ),
        "training/test_full": ("test_equal_weights_are_equal_bytes_with_a_tied_head_once",),
        "training/test_tokens": (
            "test_three_steps_move_the_rows_and_the_adapter_brings_them_back",
        ),
        "evaluation/test_full_weights": ("test_what_is_released_is_a_whole_model",),
    },
    "C63": {
        "training/test_adapter_cases": ("test_c63_nothing_is_merged_and_the_entry_names_the_base",)
    },
    "C65": {
        "spec/test_targets": ("test_c65_each_entry_without_a_match_is_named_with_the_nearest",),
        "memory/test_shapes": ("test_every_target_without_a_match_is_named",),
        "stages/test_plan": (
            "test_targets_are_counted_by_entry",
            "test_every_wrong_target_is_named",
        ),
        "training/test_model": ("test_build_refuses_wrong_targets_before_peft",),
    },
    "C66": {
        "training/test_adapter": (
            "test_check_catches_an_empty_tensor_even_when_expected",
            "test_check_catches_a_broken_tensor",
            "test_a_nan_never_becomes_an_adapter",
        ),
        "training/test_proof": ("test_what_fails_the_proof_never_has_the_real_name",),
    },
    "C67": {
        "training/test_adapter": ("test_peft_loads_it_and_every_key_takes_effect",),
        "training/test_proof": (
            "test_c67_an_adapter_without_effect",
            "test_c67_a_misnamed_tensor",
        ),
        "evaluation/test_models": ("test_missing_and_unexpected_tensors_are_refused",),
        "evaluation/test_gate": ("test_an_adapter_without_effect_is_refused",),
    },
}


def names_in(file: str) -> set[str]:
    tree = ast.parse((TESTS / f"{file}.py").read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("case", HELD_BY)
def test_what_holds_a_case_is_there(case: str) -> None:
    lost = [
        f"{file}.py::{name}"
        for file, names in HELD_BY[case].items()
        for name in names
        if name not in names_in(file)
    ]
    assert lost == [], "renamed or removed: say here what holds the case now"


def test_planted_fault_a_renamed_test_is_missed() -> None:
    assert "test_c28_renamed" not in names_in("training/test_packing_cases")
