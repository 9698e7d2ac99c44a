"""From logits to one id per sequence and its log-probability.

The log-probability is that of the processed distribution, the one the id was drawn from
(temperature, top-k and top-p applied), as vLLM's ``processed_logprobs``. Each sequence brings its
own uniform number, so that a seed gives the same draw whatever else is in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .request import Sampling, TopLogprobs


def sample(
    logits: torch.Tensor, samplings: Sequence[Sampling], uniforms: Sequence[float]
) -> tuple[torch.Tensor, torch.Tensor]:
    """``logits`` [n, vocab] to the processed log-probabilities [n, vocab] and the ids [n]."""
    logprobs = torch.log_softmax(process(logits.float(), samplings), dim=-1)
    # float64: a float32 running sum over a large vocabulary is off by more than a rare id's share
    total = torch.cumsum(logprobs.double().exp(), dim=-1)
    u = torch.tensor(uniforms, dtype=torch.float64, device=logits.device) * total[:, -1]
    ids = torch.searchsorted(total, u.unsqueeze(1), right=True).squeeze(1)
    greedy = [i for i, s in enumerate(samplings) if s.temperature == 0]
    if greedy:
        ids[greedy] = logprobs[greedy].argmax(dim=-1)
    return logprobs, ids.clamp_(max=logits.shape[-1] - 1)


def process(logits: torch.Tensor, samplings: Sequence[Sampling]) -> torch.Tensor:
    if all(s.plain for s in samplings):
        return logits
    temperatures = [s.temperature or 1.0 for s in samplings]
    logits = logits / logits.new_tensor(temperatures).unsqueeze(1)
    cut = [i for i, s in enumerate(samplings) if (s.top_k or s.top_p < 1) and s.temperature]
    if cut:
        logits[cut] = _cut(logits[cut], [samplings[i] for i in cut])
    return logits


def _cut(logits: torch.Tensor, samplings: Sequence[Sampling]) -> torch.Tensor:
    vocabulary = logits.shape[-1]
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    keep_k = logits.new_tensor([s.top_k or vocabulary for s in samplings]).unsqueeze(1)
    drop = torch.arange(vocabulary, device=logits.device).unsqueeze(0) >= keep_k
    ordered = ordered.masked_fill(drop, -torch.inf)
    share = ordered.softmax(dim=-1)
    # an id stays while the mass before it is below top_p, so the first always stays
    before = share.cumsum(dim=-1) - share
    limits = [s.top_p if s.top_p < 1 else torch.inf for s in samplings]
    drop |= before >= logits.new_tensor(limits).unsqueeze(1)
    return logits.masked_fill(drop.gather(-1, order.argsort(dim=-1)), -torch.inf)


def entropy(logprobs: torch.Tensor) -> torch.Tensor:
    """In nats, of each row; what top-k and top-p left out counts for nothing."""
    return -(logprobs.exp() * logprobs.clamp_min(torch.finfo(logprobs.dtype).min)).sum(dim=-1)


def top(logprobs: torch.Tensor, count: int) -> TopLogprobs:
    values, ids = logprobs.topk(count)
    return [(int(i), float(v)) for i, v in zip(ids.tolist(), values.tolist(), strict=True)]
