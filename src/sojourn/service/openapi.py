"""The OpenAPI document of a server, generated from its routes."""

from __future__ import annotations

import re
from typing import Any

from sojourn._version import __version__
from sojourn.service.http.router import Role, Route, Router

_PART = re.compile(r"\{(\w+)\}")
_TAGS = (
    ("/v1/", "TensorFlow Serving"),
    ("/v2", "Open Inference Protocol"),
    ("/admin/", "Admin"),
    ("", "Operations"),
)
_ERROR = {"$ref": "#/components/responses/Error"}


def document(router: Router) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the routes."""
    paths: dict[str, dict[str, Any]] = {}
    taken: set[str] = set()
    for route in router.routes:
        paths.setdefault(route.pattern, {})[route.method.lower()] = _operation(route, taken)
    return {
        "openapi": "3.1.0",
        "info": {"title": "sojourn", "version": __version__},
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {
                "Error": {
                    "description": "What went wrong",
                    "content": {
                        "application/json": {
                            "schema": {
                                "type": "object",
                                "properties": {"error": {"type": "string"}},
                                "required": ["error"],
                            }
                        }
                    },
                }
            },
        },
    }


def _operation(route: Route, taken: set[str]) -> dict[str, Any]:
    names = _PART.findall(route.pattern)
    responses: dict[str, Any] = {"200": {"description": "The answer"}, "default": _ERROR}
    operation: dict[str, Any] = {
        "operationId": _identifier(route, taken),
        "summary": route.summary or f"{route.method} {route.pattern}",
        "tags": [next(tag for start, tag in _TAGS if route.pattern.startswith(start))],
        "responses": responses,
    }
    if names:
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in names
        ]
    if route.method == "POST":
        operation["requestBody"] = {"content": {"application/json": {"schema": {}}}}
    if route.role is not Role.ANYBODY:
        operation["security"] = [{"token": []}]
        operation["x-role"] = route.role.name.lower()
    return operation


def _identifier(route: Route, taken: set[str]) -> str:
    """Return a unique operation id: `/page` and `/page/` consist of the same words."""
    name = "_".join([route.method.lower(), *re.findall(r"\w+", route.pattern)])
    while name in taken:
        name += "_"
    taken.add(name)
    return name
