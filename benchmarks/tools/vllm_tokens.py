"""vLLM without a server, driven line by line; runs in vLLM's own environment.

Reads ``{"prompts": [[ids]], "sampled": n}`` and answers the seconds that sampling took, with the
log-probability of every sampled id, as training needs it. Its first answer, ``0``, says that it is
ready. Float32; eager, unless ``compiled``, which takes minutes to start; prompts are not reused.

python vllm_tokens.py MODEL_DIR [compiled]
"""

from __future__ import annotations

import json
import os
import sys
import time


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what vLLM has to say
    from vllm import LLM, SamplingParams, TokensPrompt

    llm = LLM(
        sys.argv[1],
        dtype="float32",
        skip_tokenizer_init=True,
        max_model_len=1024,
        max_num_seqs=64,
        enable_prefix_caching=False,
        enforce_eager="compiled" not in sys.argv,
        logprobs_mode="processed_logprobs",
    )

    def sample(prompts: list[list[int]], sampled: int) -> float:
        how = SamplingParams(max_tokens=sampled, ignore_eos=True, detokenize=False, logprobs=0)
        asked = [TokensPrompt(prompt_token_ids=prompt) for prompt in prompts]
        started = time.perf_counter()
        llm.generate(asked, how, use_tqdm=False)
        return time.perf_counter() - started

    sample([[1, 2, 3]], 2)
    print(0, file=answers)
    for line in sys.stdin:
        print(sample(**json.loads(line)), file=answers)


if __name__ == "__main__":
    main()
