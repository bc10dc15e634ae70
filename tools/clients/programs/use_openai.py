from openai import OpenAI
from tried import HELLO, MODEL, URL, WEATHER, tried

client = OpenAI(base_url=f"{URL}/v1", api_key="none")
chats = client.chat.completions
tool = {"type": "function", "function": {"name": "weather", "parameters": WEATHER}}
tried(
    text=lambda: chats.create(model=MODEL, messages=HELLO, max_tokens=8).choices[0].message.content,
    stream=lambda: list(chats.create(model=MODEL, messages=HELLO, max_tokens=8, stream=True)),
    tools=lambda: (
        chats.create(model=MODEL, messages=HELLO, tools=[tool], tool_choice="required").choices[0].message.tool_calls
    ),
    responses=lambda: client.responses.create(model=MODEL, input="Say hello", max_output_tokens=8).output_text,
)
