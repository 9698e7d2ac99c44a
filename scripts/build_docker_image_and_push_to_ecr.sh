#!/usr/bin/env bash
# Builds an agent's image for ARM64 and pushes it to ECR; --help has the options.
# The script itself is part of the package, so that 'art deploy --aws --container' has it too.
exec bash "$(dirname "$0")/../src/agentcore_rl_toolkit/deploy/build_docker_image_and_push_to_ecr.sh" "$@"
