#!/usr/bin/env bash
# Builds an agent's image for ARM64 and pushes it to ECR; prints the image's URI on the last line.
#
#   build_docker_image_and_push_to_ecr.sh --dockerfile=FILE --tag=TAG --context=FOLDER
#       [--region=…] [--account=…] [--repo=…] [--env-file=.env] [--dry-run]
#
# AWS_REGION, AWS_ACCOUNT and ECR_REPO_NAME come from the options, else the environment, else the
# file (.env in the working folder; see .env.example). The repository is made when it is missing.
set -euo pipefail

fail() {
  echo "error: $*" >&2
  exit 1
}

dockerfile="" tag="" context="" region="" account="" repo="" env_file=".env" dry_run=""
for argument in "$@"; do
  case "$argument" in
    --dockerfile=*) dockerfile="${argument#*=}" ;;
    --tag=*) tag="${argument#*=}" ;;
    --context=*) context="${argument#*=}" ;;
    --region=*) region="${argument#*=}" ;;
    --account=*) account="${argument#*=}" ;;
    --repo=*) repo="${argument#*=}" ;;
    --env-file=*) env_file="${argument#*=}" ;;
    --dry-run) dry_run=yes ;;
    -h | --help)
      sed -n '2,8s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    *) fail "unknown argument $argument; --help lists them" ;;
  esac
done

# A line NAME=VALUE of the file; nothing of it is run.
setting() {
  [ -f "$env_file" ] || return 0
  sed -n "s/^[[:space:]]*\(export[[:space:]]\{1,\}\)\{0,1\}$1=//p" "$env_file" | tail -n 1 |
    sed "s/^[\"']//; s/[\"'][[:space:]]*$//; s/[[:space:]]*$//"
}

region="${region:-${AWS_REGION:-$(setting AWS_REGION)}}"
account="${account:-${AWS_ACCOUNT:-$(setting AWS_ACCOUNT)}}"
repo="${repo:-${ECR_REPO_NAME:-$(setting ECR_REPO_NAME)}}"

[ -n "$dockerfile" ] && [ -n "$tag" ] && [ -n "$context" ] ||
  fail "--dockerfile=, --tag= and --context= are needed"
[ -f "$dockerfile" ] || fail "$dockerfile does not exist ('art deploy FOLDER --aws --container' writes one)"
[ -d "$context" ] || fail "$context is not a folder"
[ -n "$region" ] || fail "no region: set AWS_REGION in $env_file or pass --region="
[[ "$account" =~ ^[0-9]{12}$ ]] || fail "no account: set AWS_ACCOUNT (12 digits) in $env_file or pass --account="
[ -n "$repo" ] || fail "no repository: set ECR_REPO_NAME in $env_file or pass --repo="

domain="amazonaws.com"
case "$region" in cn-*) domain="amazonaws.com.cn" ;; esac
registry="$account.dkr.ecr.$region.$domain"
image="$registry/$repo:$tag"

run() {
  if [ -n "$dry_run" ]; then
    printf '%q ' "$@"
    echo
  else
    "$@"
  fi
}

if [ -z "$dry_run" ]; then
  for program in docker aws; do
    command -v "$program" >/dev/null || fail "$program is not installed"
  done
  docker buildx version >/dev/null 2>&1 || fail "docker buildx is needed to build for ARM64"
  aws ecr get-login-password --region "$region" |
    docker login --username AWS --password-stdin "$registry" >/dev/null
  aws ecr describe-repositories --region "$region" --repository-names "$repo" >/dev/null 2>&1 ||
    aws ecr create-repository --region "$region" --repository-name "$repo" >/dev/null
fi
run docker buildx build --platform linux/arm64 --provenance=false --file "$dockerfile" \
  --tag "$image" --push "$context"
echo "$image"
