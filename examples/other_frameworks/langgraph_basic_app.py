"""A LangGraph graph of model and tools, as deployed."""

import os

from bedrock_agentcore.runtime import BedrockAgentCoreApp
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from warehouse import SYSTEM_PROMPT, count, price

TOOLS = [tool(count), tool(price)]

app = BedrockAgentCoreApp()


@app.entrypoint
def invoke(payload):
    model = ChatOpenAI(
        base_url=os.environ["MODEL_URL"],
        api_key=os.environ["MODEL_KEY"],
        model=os.environ["MODEL_ID"],
    )
    return {"response": solve(model, payload["prompt"])}


def solve(model, prompt):
    bound = model.bind_tools(TOOLS)

    def call_model(state: MessagesState):
        return {"messages": [bound.invoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", call_model)
    builder.add_node("tools", ToolNode(TOOLS))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    final = builder.compile().invoke({"messages": [("system", SYSTEM_PROMPT), ("user", prompt)]})
    return str(final["messages"][-1].content)


if __name__ == "__main__":
    app.run()
