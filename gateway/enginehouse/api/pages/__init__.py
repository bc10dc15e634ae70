"""Pages that Starlette answers: the model list, the operators' pages and the engines' own pages.

``operators`` guards every page that needs an admin key.
"""
