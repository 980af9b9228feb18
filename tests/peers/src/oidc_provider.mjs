// A provider made of the package oidc-provider, with its own pages for people to log in. Everybody's password is right.
// Arguments: the package's folder, the port, the certificate, its key, where the console wants people back, how tokens are signed.
import fs from 'node:fs';
import https from 'node:https';
import { generateKeyPairSync } from 'node:crypto';

const [home, port, cert, key, redirect, algorithm] = process.argv.slice(2);
const { default: Provider } = await import(`${home}/node_modules/oidc-provider/lib/index.js`);
const groups = { ann: ['staff', 'weir-admins'], bob: ['helpdesk'], cat: [], admin: ['weir-admins'] };
const jwk = (type, options, id) => ({ ...generateKeyPairSync(type, options).privateKey.export({ format: 'jwk' }), kid: id, use: 'sig' });
const provider = new Provider(`https://localhost:${port}`, {
  clients: [{
    client_id: 'weir', client_secret: 'a secret: with /+% in it', redirect_uris: [redirect],
    response_types: ['code'], grant_types: ['authorization_code'], id_token_signed_response_alg: algorithm,
  }],
  jwks: { keys: [jwk('rsa', { modulusLength: 2048 }, 'one'), jwk('ec', { namedCurve: 'P-256' }, 'two')] },
  claims: { openid: ['sub'], profile: ['preferred_username'], groups: ['groups'] },
  pkce: { methods: ['S256'], required: () => true },
  cookies: { keys: ['of this test'] },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: `number of ${id}`, preferred_username: id, groups: groups[id] }) }),
});
https.createServer({ cert: fs.readFileSync(cert), key: fs.readFileSync(key) }, provider.callback()).listen(Number(port), '127.0.0.1');
