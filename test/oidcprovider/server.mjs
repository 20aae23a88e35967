// An identity provider on the engine oidc-provider.
//
//   node server.mjs <folder of the package> <port> <port for TLS> <clients.json>
//
// The engine reads requests, authenticates clients, keeps, signs, expires,
// revokes and introspects tokens and words the errors. It knows no token
// exchange: which subject is taken, and which client gets which scopes of which
// resource, is decided here, in as few lines as will do.
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as createSecureServer } from "node:https";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { generateKeyPairSync } from "node:crypto";

const [folder, port, secure, clients] = process.argv.slice(2);
const main = createRequire(`${folder}/`).resolve("oidc-provider");
const { Provider, errors } = await import(pathToFileURL(main));

const exchange = "urn:ietf:params:oauth:grant-type:token-exchange";
const accessToken = "urn:ietf:params:oauth:token-type:access_token";
const resources = {
  "https://records.example.org/mcp": { scope: "records.read", open: true },
  "https://mail.example.org/mcp": { scope: "mail.read", open: false },
};
const life = { issued: 300, subject: 300, short: 2 }; // seconds
const key = generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey.export({ format: "jwk" });

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: JSON.parse(readFileSync(clients, "utf8")),
  clientDefaults: { grant_types: [exchange], response_types: [], redirect_uris: [], id_token_signed_response_alg: "ES256" },
  jwks: { keys: [{ ...key, alg: "ES256", use: "sig", kid: "signing" }] },
  cookies: { keys: ["of no use: there is no page"] },
  scopes: ["openid", "records.read", "mail.read"],
  clientAuthMethods: ["client_secret_basic", "client_secret_post", "private_key_jwt", "tls_client_auth", "none"],
  enabledJWA: { clientAuthSigningAlgValues: ["ES256"] },
  findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub }) }),
  ttl: { AccessToken: (_, token, client) => (token.resourceServer ? life.issued : client.clientId.endsWith("-short") ? life.short : life.subject) },
  features: {
    mTLS: {
      enabled: true,
      tlsClientAuth: true,
      certificateBoundAccessTokens: true,
      getCertificate: (ctx) => ctx.socket.getPeerX509Certificate?.(),
      certificateAuthorized: (ctx) => ctx.socket.authorized,
      certificateSubjectMatches: (ctx, property, expected) =>
        property === "tls_client_auth_subject_dn" && ctx.socket.getPeerX509Certificate().subject === expected,
    },
    devInteractions: { enabled: false },
    introspection: { enabled: true },
    revocation: { enabled: true },
    resourceIndicators: { enabled: true },
  },
});

// answer keeps a token and says so. A token for a resource becomes a JWT.
async function answer(ctx, token, more) {
  const value = await token.save();
  ctx.body = { access_token: value, token_type: token.tokenType, expires_in: token.expiration, scope: token.scope, ...more };
}

// How a person gets a subject token.
provider.registerGrantType("password", async (ctx) => {
  const { client, params } = ctx.oidc;
  if (params.username !== "admin@example.com" || params.password !== "password") throw new errors.InvalidGrant("no such user");
  await answer(ctx, new provider.AccessToken({ accountId: "user:7", client, grantId: params.username, gty: "password", scope: "openid" }));
}, ["username", "password", "scope"]);

// RFC 8693 §2.1, and RFC 8707 for the target.
provider.registerGrantType(exchange, async (ctx) => {
  const { client, params } = ctx.oidc;
  if (params.subject_token_type !== accessToken || (params.requested_token_type ?? accessToken) !== accessToken) {
    throw new errors.InvalidRequest("access tokens alone are exchanged here");
  }
  const subject = await provider.AccessToken.find(params.subject_token ?? "");
  if (!subject?.accountId) throw new errors.InvalidRequest("subject_token is not acceptable");
  const target = resources[params.resource];
  if (!target?.open) throw new errors.InvalidTarget();
  const asked = (params.scope ?? "").split(" ");
  if (!asked.every((scope) => target.scope.split(" ").includes(scope))) throw new errors.InvalidScope("not of this resource", params.scope);

  const token = new provider.AccessToken({ accountId: subject.accountId, client, grantId: subject.grantId, gty: exchange, scope: asked.join(" ") });
  token.resourceServer = new provider.ResourceServer(params.resource, { scope: target.scope, accessTokenFormat: "jwt", jwt: { sign: { alg: "ES256" } } });
  if (client.tlsClientCertificateBoundAccessTokens) token.setThumbprint("x5t", ctx.socket.getPeerX509Certificate());
  await answer(ctx, token, { issued_token_type: accessToken });
}, ["subject_token", "subject_token_type", "requested_token_type", "audience", "resource", "scope"]);

provider.on("server_error", (_, err) => console.error(err));
const tls = { cert: readFileSync("server.pem"), key: readFileSync("server.key"), ca: readFileSync("ca.pem"), requestCert: true, rejectUnauthorized: false };
createSecureServer(tls, provider.callback()).listen(Number(secure), "127.0.0.1");
createServer(provider.callback()).listen(Number(port), "127.0.0.1");
