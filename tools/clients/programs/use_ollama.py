import ollama
from tried import HELLO, MODEL, URL, tried

client = ollama.Client(host=URL)
tried(
    text=lambda: client.chat(model=MODEL, messages=HELLO).message.content,
    stream=lambda: list(client.chat(model=MODEL, messages=HELLO, stream=True)),
    prompt=lambda: client.generate(model=MODEL, prompt="Say hello").response,
    embeddings=lambda: client.embed(model=MODEL, input="hello").embeddings,
    models=lambda: client.list().models,
)
