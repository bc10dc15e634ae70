from llama_index.llms.openai_like import OpenAILike
from tried import MODEL, URL, tried

model = OpenAILike(model=MODEL, api_base=f"{URL}/v1", api_key="none", is_chat_model=True, max_tokens=8)
tried(
    text=lambda: str(model.complete("Say hello")),
    stream=lambda: list(model.stream_complete("Say hello")),
)
