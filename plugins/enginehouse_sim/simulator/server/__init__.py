"""The engine as a server: the OpenAI API and vLLM's other pages over HTTP."""
