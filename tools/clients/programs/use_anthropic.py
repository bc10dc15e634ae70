from anthropic import Anthropic
from tried import HELLO, MODEL, URL, tried

client = Anthropic(base_url=URL, api_key="none")


def streamed():
    with client.messages.stream(model=MODEL, messages=HELLO, max_tokens=8) as stream:
        return stream.get_final_message().content


tried(
    text=lambda: client.messages.create(model=MODEL, messages=HELLO, max_tokens=8).content,
    stream=streamed,
    tokens=lambda: client.messages.count_tokens(model=MODEL, messages=HELLO).input_tokens,
)
