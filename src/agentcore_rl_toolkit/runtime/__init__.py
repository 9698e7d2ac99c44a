"""The local AgentCore Runtime: the AWS wire on one machine, one isolated session per session id."""
