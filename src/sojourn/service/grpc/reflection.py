"""gRPC's standard reflection service, by which tools find the services and methods here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from typing import Any

from sojourn.service.failures import Status
from sojourn.service.grpc.calls import Call, Service, Stream
from sojourn.service.grpc.messages import POOL, File


class Reflection:
    """Describes the services, under one of the two names of the reflection service."""

    def __init__(self, file: File, services: Collection[str]) -> None:
        self._file = file
        self._services = sorted(services)

    def service(self) -> Service:
        return Service(
            self._file, "ServerReflection", {"ServerReflectionInfo": Stream(self._answer)}
        )

    async def _answer(self, requests: AsyncIterator[Any], call: Call) -> AsyncIterator[Any]:
        async for request in requests:
            response = self._file.ServerReflectionResponse(
                valid_host=request.host, original_request=request
            )
            try:
                self._put(request, response)
            except KeyError as error:
                response.error_response.error_code = Status.NOT_FOUND.grpc
                response.error_response.error_message = str(error.args[0])[:200]
            yield response

    def _put(self, request: Any, response: Any) -> None:
        asked = request.WhichOneof("message_request")
        if asked == "list_services":
            for name in self._services:
                response.list_services_response.service.add(name=name)
        elif asked == "file_by_filename":
            self._put_files(POOL.FindFileByName(request.file_by_filename), response)
        elif asked == "file_containing_symbol":
            self._put_files(_file_with(request.file_containing_symbol), response)
        elif asked == "all_extension_numbers_of_type":
            POOL.FindMessageTypeByName(request.all_extension_numbers_of_type)
            name = request.all_extension_numbers_of_type
            response.all_extension_numbers_response.base_type_name = name
        else:
            raise KeyError("messages here have no extensions")

    def _put_files(self, file: Any, response: Any) -> None:
        """Put the file and all its imports into the response: the client need not ask again."""
        waiting, seen = [file], {}
        while waiting:
            found = waiting.pop()
            if found.name not in seen:
                seen[found.name] = found.serialized_pb
                waiting += found.dependencies
        response.file_descriptor_response.file_descriptor_proto.extend(seen.values())


def _file_with(symbol: str) -> Any:
    """The file that declares a message, an enum, a service or a method. protobuf finds no file by a
    method's name, so its service is looked up instead. Raises KeyError."""
    try:
        return POOL.FindFileContainingSymbol(symbol)
    except KeyError:
        service, _, method = symbol.rpartition(".")
        if method not in POOL.FindServiceByName(service).methods_by_name:
            raise
        return POOL.FindFileContainingSymbol(service)
