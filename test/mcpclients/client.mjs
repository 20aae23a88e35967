// Lists the tools of an MCP server and calls whoami, on one of the official TypeScript
// libraries:
//
//   client.mjs MODULES LIBRARY URL MODE
//
// LIBRARY: client (2.x) or sdk (1.x, by handshake alone); MODE: legacy, auto or a version. The token is in
// $TOKEN; with $SIGN_IN the person signs in, see sign_in.mjs. It prints one JSON object: version, tools, text
// and meta of the answer.
import { createRequire } from "node:module";
import { signIn } from "./sign_in.mjs";

const [modules, library, url, mode] = process.argv.slice(2);
const require = createRequire(modules + "/");
const { Client, StreamableHTTPClientTransport, UnauthorizedError } = library === "client"
    ? require("@modelcontextprotocol/client")
    : { ...require("@modelcontextprotocol/sdk/client/index.js"), ...require("@modelcontextprotocol/sdk/client/streamableHttp.js"), ...require("@modelcontextprotocol/sdk/client/auth.js") };

const negotiation = { legacy: {}, auto: { versionNegotiation: { mode: "auto" } } }[mode] ?? { versionNegotiation: { mode: { pin: mode } } };
const client = new Client({ name: "desk", version: "1" }, library === "client" ? negotiation : {});
const known = JSON.parse(process.env.SIGN_IN);
const authProvider = known && await signIn(known);
const options = known ? { authProvider } : { requestInit: { headers: { Authorization: "Bearer " + process.env.TOKEN } } };
let transport = new StreamableHTTPClientTransport(new URL(url), options);
try {
    await client.connect(transport);
} catch (error) {
    if (!known || !(error instanceof UnauthorizedError)) throw error;
    const back = await authProvider.back;
    await transport.finishAuth(library === "client" ? back : back.get("code"));
    transport = new StreamableHTTPClientTransport(new URL(url), options);
    await client.connect(transport);
}
const { tools } = await client.listTools();
const answer = await client.callTool({ name: "whoami", arguments: {}, _meta: { "onbehalf/request_key": process.env.KEY } });
console.log(JSON.stringify({
    version: client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion,
    tools: tools.map((t) => t.name),
    text: answer.content[0].text,
    isError: answer.isError ?? false,
    meta: answer._meta,
}));
await client.close();
