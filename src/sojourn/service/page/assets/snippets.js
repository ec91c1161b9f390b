// The same request as a command and as program code, to copy.

const LONG = 1500; // most characters of data that are written out
const NUMPY = { FP16: "float16", FP32: "float32", FP64: "float64", BOOL: "bool", BYTES: "object" };
const FIELDS = { BOOL: "bool_contents", FP32: "fp32_contents", FP64: "fp64_contents", BYTES: "bytes_contents" };

function shell(text) {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

function python(text) {
  return JSON.stringify(text); // also a valid string in Python
}

function numpy(type) {
  return NUMPY[type] || type.toLowerCase();
}

function array(tensor) {
  const { datatype, shape, data, raw, filled, file } = tensor;
  const dims = `(${shape.join(", ")}${shape.length === 1 ? "," : ""})`;
  if (raw) return `np.array([open(${python(file)}, "rb").read()], dtype=object).reshape(${dims})`;
  if (filled === "zeros" || filled === "ones") return `np.${filled}(${dims}, np.${numpy(datatype)})`;
  if (filled === "random") return `np.random.random(${dims}).astype(np.${numpy(datatype)})`;
  const text = JSON.stringify(data).replaceAll("true", "True").replaceAll("false", "False");
  if (datatype === "BYTES") return `np.array(${JSON.stringify(data)}, dtype=object).reshape(${dims})`;
  if (text.length > LONG) return `np.zeros(${dims}, np.${numpy(datatype)})  # yours`;
  return `np.array(${text}, np.${numpy(datatype)}).reshape(${dims})`;
}

function client(kind, address, model, version, tensors, token) {
  const bearer = token ? `, headers={"${kind === "grpc" ? "authorization" : "Authorization"}": "Bearer " + os.environ["SOJOURN_TOKEN"]}` : "";
  const lines = [
    ...(token ? ["import os", ""] : []),
    "import numpy as np",
    `import tritonclient.${kind} as client`,
    "",
    `server = client.InferenceServerClient(${python(address)})`,
    "inputs = []",
  ];
  for (const tensor of tensors) {
    lines.push(
      `array = ${array(tensor)}`,
      `tensor = client.InferInput(${python(tensor.name)}, array.shape, ${python(tensor.datatype)})`,
      "tensor.set_data_from_numpy(array)",
      "inputs.append(tensor)",
    );
  }
  const asked = version ? `, model_version=${python(String(version))}` : "";
  lines.push(`answer = server.infer(${python(model)}, inputs${asked}${bearer})`);
  lines.push('print({output["name"]: answer.as_numpy(output["name"]) for output in answer.get_response()["outputs"]})');
  if (kind === "grpc") lines[lines.length - 1] = "print({output.name: answer.as_numpy(output.name) for output in answer.get_response().outputs})";
  return lines.join("\n");
}

function grpcurl(address, model, version, tensors, token) {
  const inputs = tensors.map(({ name, datatype, shape, data, raw }) => {
    const wide = datatype.endsWith("64") ? "int64_contents" : "int_contents";
    const field = FIELDS[datatype] || (datatype.startsWith("U") ? `u${wide}` : wide);
    const base64 = (text) => btoa(String.fromCharCode(...new TextEncoder().encode(text)));
    const values = raw ? ["…base64 of the file…"] : datatype === "BYTES" ? data.map(base64) : data;
    const isLong = JSON.stringify(values).length > LONG;
    return { name, datatype, shape, contents: { [field]: isLong ? ["…yours…"] : values } };
  });
  const message = JSON.stringify({ model_name: model, ...(version ? { model_version: String(version) } : {}), inputs });
  const bearer = token ? ` -H "authorization: Bearer $SOJOURN_TOKEN"` : "";
  return `grpcurl -plaintext${bearer} -d ${shell(message)} \\\n  ${address} inference.GRPCInferenceService/ModelInfer`;
}

function curl(url, made, token) {
  const bearer = token ? ` \\\n  -H "Authorization: Bearer $SOJOURN_TOKEN"` : "";
  if (typeof made.body !== "string") {
    const length = made.headers["Inference-Header-Content-Length"];
    return `curl -X POST ${shell(url)}${bearer} \\\n  -H 'Inference-Header-Content-Length: ${length}' \\\n  --data-binary @request.bin`;
  }
  const data = made.text.length > LONG ? "@request.json" : shell(made.text);
  return `curl -X POST ${shell(url)}${bearer} \\\n  -H 'Content-Type: application/json' \\\n  -d ${data}`;
}

// The snippets of one request, each [title, text]. `addresses` are those of the server.
export function snippets({ model, version, tensors, made, path, addresses, token }) {
  const url = new URL(path, document.baseURI);
  const http = addresses.http || url.host;
  const found = [
    ["curl", curl(url.href, made, token)],
    ["Python, tritonclient", client("http", http, model, version, tensors, token)],
  ];
  if (addresses.grpc) {
    found.push(["Python, gRPC", client("grpc", addresses.grpc, model, version, tensors, token)]);
    found.push(["grpcurl", grpcurl(addresses.grpc, model, version, tensors, token)]);
  }
  return found;
}
