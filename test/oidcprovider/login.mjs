// An authorization server at which people sign in for MCP clients, on the engine
// oidc-provider.
//
//   node login.mjs <folder of the package> <port> <what stands before the name of a server>
//
// All of it is the engine's: pages, clients that were registered, that register
// themselves or that are a document, code flow, tokens. Decided here is only what a
// company decides: a token is for one server (RFC 8707), with the scope "mcp", and
// whoever asks for no server gets one that is no JWT.
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { generateKeyPairSync } from "node:crypto";

const [folder, port, servers] = process.argv.slice(2);
const main = createRequire(`${folder}/`).resolve("oidc-provider");
const { Provider, errors } = await import(pathToFileURL(main));

const key = generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey.export({ format: "jwk" });
const desk = {
  client_id: "desk",
  application_type: "native",
  token_endpoint_auth_method: "none",
  redirect_uris: ["http://127.0.0.1/callback", "http://127.0.0.1/kept"], // with any port (RFC 8252 §7.3)
  grant_types: ["authorization_code", "refresh_token"],
};

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [desk],
  clientDefaults: { id_token_signed_response_alg: "ES256" },
  jwks: { keys: [{ ...key, alg: "ES256", use: "sig", kid: "people" }] },
  cookies: { keys: ["for one test"] },
  scopes: ["openid", "offline_access", "mcp"],
  enabledJWA: { idTokenSigningAlgValues: ["ES256"] },
  pkce: { required: () => true },
  findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub }) }),
  fetch: (url, { dispatcher, ...options }) => fetch(url, options), // documents of a test are on loopback, where the engine refuses to ask
  ttl: { AccessToken: 300 },
  // What is asked for by the page /kept is as if it had been kept for an hour.
  formats: { customizers: { jwt(ctx, _, { payload }) {
    if (!ctx.oidc.params.redirect_uri?.endsWith("/kept")) return;
    payload.iat -= 3600;
    payload.exp -= 3600;
  } } },
  features: {
    registration: { enabled: true },
    clientIdMetadataDocument: { enabled: true, ack: "draft-02" },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo(_, resource) {
        if (!resource.startsWith(servers)) throw new errors.InvalidTarget();
        return { scope: "mcp", accessTokenFormat: "jwt", jwt: { sign: { alg: "ES256" } } };
      },
    },
  },
});

provider.on("server_error", (_, err) => console.error(err));
createServer(provider.callback()).listen(Number(port), "127.0.0.1");
