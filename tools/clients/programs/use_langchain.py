from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from tried import MODEL, URL, tried

openai = ChatOpenAI(model=MODEL, base_url=f"{URL}/v1", api_key="none", max_tokens=8)
anthropic = ChatAnthropic(model=MODEL, base_url=URL, api_key="none", max_tokens=8)
tried(
    text=lambda: openai.invoke("Say hello").content,
    stream=lambda: list(openai.stream("Say hello")),
    messages=lambda: anthropic.invoke("Say hello").content,
)
