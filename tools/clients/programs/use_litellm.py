import litellm
from tried import HELLO, MODEL, URL, tried


def ask(prefix, base, messages=HELLO, **fields):
    return litellm.completion(model=f"{prefix}/{MODEL}", api_base=base, api_key="none", messages=messages, **fields)


def refused():
    try:
        ask("openai", f"{URL}/v1", [{"role": "user", "content": "word " * 400_000}])
    except litellm.ContextWindowExceededError:
        return True


tried(
    text=lambda: ask("openai", f"{URL}/v1", max_tokens=8).choices[0].message.content,
    stream=lambda: list(ask("openai", f"{URL}/v1", max_tokens=8, stream=True)),
    messages=lambda: ask("anthropic", URL, max_tokens=8).choices[0].message.content,
    ollama_chat=lambda: ask("ollama_chat", URL).choices[0].message.content,
    context_error=refused,
)
