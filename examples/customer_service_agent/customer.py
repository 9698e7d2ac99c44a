"""The simulated customer: another model at the same address, under a name that is not trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openai import OpenAI

DONE = "###DONE###"
MAX_EXCHANGES = 10
SYSTEM_PROMPT = (
    "You play a customer who writes to an airline. {instruction}\n"
    "Write one short message at a time. Do not tell everything at once, do not make anything up, "
    f"and never help with the airline's work. When your wish is settled, answer only {DONE}"
)


class Customer:
    """Answers the agent's messages, seeing nothing but them."""

    def __init__(self, client: OpenAI, model_id: str, instruction: str) -> None:
        self.client, self.model_id = client, model_id
        system = SYSTEM_PROMPT.format(instruction=instruction)
        self.messages: list[Any] = [{"role": "system", "content": system}]

    def answer(self, said: str) -> str:
        self.messages.append({"role": "user", "content": said})
        completion = self.client.chat.completions.create(
            model=self.model_id, messages=self.messages
        )
        text = completion.choices[0].message.content or ""
        self.messages.append({"role": "assistant", "content": text})
        return text


def converse(agent: Callable[[str], Any], customer: Customer) -> list[str]:
    """What the agent said to the customer. Only the customer ends the conversation."""
    said: list[str] = []
    wish = customer.answer("How can I help you?")
    for _ in range(MAX_EXCHANGES):
        if DONE in wish:
            break
        said.append(str(agent(wish)))
        wish = customer.answer(said[-1])
    return said
