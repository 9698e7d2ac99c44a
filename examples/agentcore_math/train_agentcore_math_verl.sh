#!/usr/bin/env bash
# Trains the deployed math agent with rllm on verl: Megatron, eight GPUs of one machine.
# Needs AGENTCORE_AGENT_ARN and AGENTCORE_S3_BUCKET, from the environment or .env.
# Further key=value arguments go to rllm and win.
set -euo pipefail
cd "$(dirname "$0")"
if [ -f .env ]; then set -a; . ./.env; set +a; fi
: "${AGENTCORE_AGENT_ARN:?ARN of the deployed agent}" "${AGENTCORE_S3_BUCKET:?bucket of its results}"
MODEL="${MODEL:-Qwen/Qwen3-4B-Instruct-2507}"
GPUS="${GPUS:-8}"

python train.py verl \
  rllm/backend=verl \
  model_engine=megatron \
  +model.name="$MODEL" \
  actor_rollout_ref.model.path="$MODEL" \
  actor_rollout_ref.model.lora.rank=16 \
  actor_rollout_ref.model.lora.alpha=16 \
  actor_rollout_ref.model.lora.merge=true \
  actor_rollout_ref.actor.optim.lr=2e-5 \
  actor_rollout_ref.actor.ppo_mini_batch_size=64 \
  actor_rollout_ref.actor.use_dynamic_bsz=true \
  actor_rollout_ref.actor.megatron.tensor_model_parallel_size="$GPUS" \
  actor_rollout_ref.actor.megatron.sequence_parallel=true \
  actor_rollout_ref.rollout.name=vllm \
  actor_rollout_ref.rollout.mode=async \
  actor_rollout_ref.rollout.n=4 \
  actor_rollout_ref.rollout.temperature=1.0 \
  actor_rollout_ref.rollout.max_model_len=16384 \
  actor_rollout_ref.rollout.tensor_model_parallel_size="$GPUS" \
  +actor_rollout_ref.rollout.engine_kwargs.vllm.enable_auto_tool_choice=true \
  +actor_rollout_ref.rollout.engine_kwargs.vllm.tool_call_parser=hermes \
  algorithm.adv_estimator=grpo \
  data.train_batch_size=64 \
  data.val_batch_size=256 \
  data.max_prompt_length=14336 \
  data.max_response_length=2048 \
  trainer.n_gpus_per_node="$GPUS" \
  trainer.nnodes=1 \
  trainer.total_epochs=1 \
  trainer.logger="['console']" \
  trainer.project_name=agentcore-math \
  trainer.experiment_name=gsm8k-verl \
  rllm.remote_runtime.enabled=true \
  rllm.remote_runtime.backend=agentcore \
  rllm.remote_runtime.agentcore.agent_runtime_arn="$AGENTCORE_AGENT_ARN" \
  rllm.remote_runtime.agentcore.s3_bucket="$AGENTCORE_S3_BUCKET" \
  rllm.remote_runtime.agentcore.tps_limit=25 \
  rllm.remote_runtime.session_timeout=300 \
  "$@"
