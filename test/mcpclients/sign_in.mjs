// What a program on a person's desk brings to sign in by itself: an OAuthClientProvider of the
// official TypeScript libraries, and a page on loopback to which the browser comes back.
//
// How the program is known, and what it has kept of an earlier sign-in: {client_id, document,
// tokens}. Where the browser has to go is on standard error.
import { once } from "node:events";
import { createServer } from "node:http";

export async function signIn(known) {
    const back = Promise.withResolvers();
    const page = createServer((req, res) => {
        res.writeHead(200, { Connection: "close" }).end("This page can be closed.");
        page.close();
        back.resolve(new URL(req.url, redirectUrl).searchParams);
    }).listen(0, "127.0.0.1");
    await once(page, "listening");
    page.unref(); // a program that need not ask its person ends by itself
    const redirectUrl = `http://127.0.0.1:${page.address().port}/callback`;
    let client = known.client_id && { client_id: known.client_id };
    let { tokens } = known;
    let verifier;
    return {
        back: back.promise,
        redirectUrl,
        clientMetadataUrl: known.document,
        clientMetadata: {
            client_name: "Desk",
            application_type: "native",
            redirect_uris: [redirectUrl],
            grant_types: ["authorization_code", "refresh_token"],
            token_endpoint_auth_method: "none",
        },
        clientInformation: () => client,
        saveClientInformation: (registered) => { client = registered; },
        tokens: () => tokens,
        saveTokens: (issued) => { tokens = issued; },
        codeVerifier: () => verifier,
        saveCodeVerifier: (made) => { verifier = made; },
        redirectToAuthorization(to) {
            page.ref();
            console.error("open", String(to));
        },
    };
}
