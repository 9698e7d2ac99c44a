#!/usr/bin/env bash
# Trains the deployed math agent with rllm at Tinker's service.
# Needs AGENTCORE_AGENT_ARN, AGENTCORE_S3_BUCKET and TINKER_API_KEY, from the environment or .env.
# Further key=value arguments go to rllm and win.
set -euo pipefail
cd "$(dirname "$0")"
if [ -f .env ]; then set -a; . ./.env; set +a; fi
: "${AGENTCORE_AGENT_ARN:?ARN of the deployed agent}" "${AGENTCORE_S3_BUCKET:?bucket of its results}"
: "${TINKER_API_KEY:?key of the service}"

python train.py tinker \
  rllm/backend=tinker \
  model.name="${MODEL:-Qwen/Qwen3-4B-Instruct-2507}" \
  model.lora_rank=16 \
  training.group_size=4 \
  training.learning_rate=2e-5 \
  training.max_length=32768 \
  validation.group_size=1 \
  rllm.rollout.train.temperature=1.0 \
  data.max_prompt_length=30720 \
  data.max_response_length=2048 \
  data.train_batch_size=64 \
  data.val_batch_size=256 \
  rllm.data.train_batch_size=64 \
  rllm.algorithm.adv_estimator=grpo \
  rllm.trainer.total_epochs=1 \
  rllm.trainer.logger="['console']" \
  rllm.trainer.project_name=agentcore-math \
  rllm.trainer.experiment_name=gsm8k-tinker \
  rllm.remote_runtime.enabled=true \
  rllm.remote_runtime.backend=agentcore \
  rllm.remote_runtime.agentcore.agent_runtime_arn="$AGENTCORE_AGENT_ARN" \
  rllm.remote_runtime.agentcore.s3_bucket="$AGENTCORE_S3_BUCKET" \
  rllm.remote_runtime.agentcore.tps_limit=25 \
  rllm.remote_runtime.session_timeout=300 \
  "$@"
