"""ROUGE-L, BLEU and chrF as their own packages compute them, imported where a task asks for one.

The packages are optional (`pip install -e ".[metrics]"`); see spec.metric_packages.
"""

from collections.abc import Callable
from importlib import import_module

from hashtune.errors import InputError
from hashtune.spec.metric_packages import metric_findings


def package_metric(name: str) -> Callable[[str, str], float]:
    """The score of an answer against its reference, in [0, 1].

    rouge_l: F-measure of the longest common subsequence of words, without stemming (Lin 2004).
    bleu: of one sentence, exponential smoothing, tokenizer 13a (Post 2018). chrf: characters up to
    six, beta 2 (Popovic 2015). The corpus figures of papers are not means of these.

    Raises:
        InputError: the package is not there in its one version.
    """
    if findings := list(metric_findings(name)):
        raise InputError(findings)
    if name == "rouge_l":
        scorer = import_module("rouge_score.rouge_scorer").RougeScorer(["rougeL"])
        return lambda answer, reference: float(scorer.score(reference, answer)["rougeL"].fmeasure)
    score = getattr(import_module("sacrebleu"), f"sentence_{name}")
    return lambda answer, reference: min(1.0, float(score(answer, [reference]).score) / 100)
