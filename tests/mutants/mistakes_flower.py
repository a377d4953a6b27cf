"""Mistakes in federated training on Flower."""

from __future__ import annotations

from tests.mutants.mutation import Mutation

_STRATEGY = "tests/flower/strategy_test.py"
_ROUNDS = "tests/flower/rounds_test.py"
_BAD = f"{_STRATEGY}::test_a_client_moves_the_sum_by_one_at_most_and_stops_no_round"

MISTAKES = (
    Mutation(
        "records of clients are not bounded by the server",
        "flower/sums.py",
        "finite / np.maximum(1.0, np.where(np.isfinite(norms), norms, 1.0))",
        "finite",
        (f"{_STRATEGY}::test_a_client_that_says_that_it_has_clipped_is_not_believed",),
    ),
    Mutation(
        "every answer of a client counts",
        "flower/answers.py",
        "                self._waiting.remove(node)\n",
        "",
        (_BAD,),
    ),
    Mutation(
        "answers of other rounds count",
        "flower/answers.py",
        "node not in self._waiting or reply.metadata.group_id != self.token",
        "node not in self._waiting",
        (f"{_STRATEGY}::test_answers_of_other_rounds_and_of_strangers_count_nothing",),
    ),
    Mutation(
        "a client's failure ends the round",
        "flower/answers.py",
        "                continue\n            yield found\n",
        "                return\n            yield found\n",
        (_BAD,),
    ),
    Mutation(
        "a round is written down after it is published",
        "flower/progress.py",
        "        self.rounds.spend()\n        direction, self.rule_state = self.sum.publish(total, self.rule_state)\n",
        "        direction, self.rule_state = self.sum.publish(total, self.rule_state)\n        self.rounds.spend()\n",
        (f"{_ROUNDS}::test_rounds_are_in_the_ledger_before_they_are_published",),
    ),
    Mutation(
        "rounds are not in the ledger",
        "flower/rounds.py",
        "            self._session.reserve(self.done + 1, self.done + 1)\n",
        "            pass\n",
        (f"{_ROUNDS}::test_rounds_are_in_the_ledger_before_they_are_published",),
    ),
    Mutation(
        "the rule's state is lost with the server",
        "flower/progress.py",
        "        self.rule_state = _unpacked(fresh, known.rule, str(self.path))\n",
        "        self.rule_state = fresh\n",
        (f"{_ROUNDS}::test_a_run_in_two_parts_is_the_run",),
    ),
    Mutation(
        "clients are drawn by a seed that anyone can set",
        "flower/sampling.py",
        "random.SystemRandom() if seed is None",
        "random if seed is None",
        ("tests/flower/sampling_test.py::test_the_draws_are_the_operating_systems",),
    ),
    Mutation(
        "a client with two nodes is asked twice",
        "flower/sampling.py",
        "{self._user_of(node): node for node in sorted(nodes)}",
        "{node: node for node in sorted(nodes)}",
        ("tests/flower/sampling_test.py::test_a_client_with_several_nodes_is_one",),
    ),
    Mutation(
        "evaluation on clients without being asked for",
        "flower/strategy.py",
        "        if not self._nonprivate_evaluation:\n            return []\n",
        "",
        (f"{_STRATEGY}::test_nothing_of_the_clients_but_the_noised_sum_gets_out",),
    ),
    Mutation(
        "the target may be passed by a round",
        "flower/rounds.py",
        "        return max(0, self._allowed - self.done)\n",
        "        return max(0, self._allowed - self.done + 1)\n",
        (f"{_ROUNDS}::test_training_ends_before_the_target",),
    ),
    Mutation(
        "a client that clips sends its metrics along",
        "flower/mod.py",
        "        reply.content = content\n",
        "        reply.content = RecordDict({**reply.content, **content})\n",
        ("tests/flower/mod_test.py::test_what_leaves_a_client_is_clipped_and_nothing_else",),
    ),
    Mutation(
        "without replacement, the record that joins is not paid for",
        "privacy/mechanism.py",
        "event.noise_multiplier / 2.0",
        "event.noise_multiplier / 1.0",
        ("tests/privacy/mechanism_test.py::test_without_replacement_a_record_that_is_replaced_moves_the_sum_by_two",),
    ),
    Mutation(
        "what protects against replacement is added to what does not",
        "privacy/accountants.py",
        "    if len(found) > 1:\n",
        "    if len(found) > 1:\n        return dp_accounting.NeighboringRelation.REPLACE_ONE\n    if not found:\n",
        ("tests/privacy/accountants_test.py::test_what_protects_against_different_things_is_never_added_up",),
    ),
)
