// A provider that tells lies on demand: the code that a browser brings says which one.
// Arguments: the port, the certificate, its key.
import fs from 'node:fs';
import https from 'node:https';
import { createHmac, generateKeyPairSync, sign } from 'node:crypto';

const [port, cert, key] = process.argv.slice(2);
const issuer = `https://localhost:${port}`;
const own = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const other = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const published = { ...own.publicKey.export({ format: 'jwk' }), kid: 'k', use: 'sig', alg: 'ES256' };
const encoded = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
const now = () => Math.floor(Date.now() / 1000);

function token({ lie, nonce, name, groups }) {
  const header = { alg: 'ES256', kid: 'k' };
  const claims = { iss: issuer, aud: 'weir', sub: `number of ${name}`, iat: now(), exp: now() + 300, nonce, preferred_username: name, groups };
  let by = own.privateKey;
  if (lie === 'issuer') claims.iss = 'https://elsewhere.example';
  if (lie === 'audience') claims.aud = 'another client';
  if (lie === 'audiences') claims.aud = ['weir', 'another client'];
  if (lie === 'nonce') claims.nonce = 'of another sign-in';
  if (lie === 'no nonce') delete claims.nonce;
  if (lie === 'expired') claims.exp = now() - 3600;
  if (lie === 'early') claims.iat = now() + 3600;
  if (lie === 'other key') by = other.privateKey;
  if (lie === 'unknown key') header.kid = 'never published';
  if (lie === 'none') header.alg = 'none';
  if (lie === 'secret') header.alg = 'HS256';
  if (lie === 'other subject') claims.sub = 'number of another';
  if (lie === 'no groups') { delete claims.groups; }
  const words = `${encoded(header)}.${encoded(claims)}`;
  if (lie === 'none') return `${words}.`;
  if (lie === 'secret') return `${words}.${createHmac('sha256', own.publicKey.export({ format: 'pem', type: 'spki' })).update(words).digest('base64url')}`;
  return `${words}.${sign('sha256', Buffer.from(words), { key: by, dsaEncoding: 'ieee-p1363' }).toString('base64url')}`;
}

https.createServer({ cert: fs.readFileSync(cert), key: fs.readFileSync(key) }, async (request, answer) => {
  const say = (value, status = 200) => {
    answer.writeHead(status, { 'content-type': 'application/json' });
    answer.end(JSON.stringify(value));
  };
  const { pathname } = new URL(request.url, issuer);
  if (pathname === '/.well-known/openid-configuration') {
    return say({ issuer, authorization_endpoint: `${issuer}/auth`, token_endpoint: `${issuer}/token`, jwks_uri: `${issuer}/keys`, userinfo_endpoint: `${issuer}/me` });
  }
  if (pathname === '/keys') return say({ keys: [published] });
  if (pathname === '/me') return say({ sub: 'number of somebody else', groups: ['weir-admins'] });
  if (pathname !== '/token') return say({}, 404);
  let body = '';
  for await (const piece of request) body += piece;
  const asked = JSON.parse(Buffer.from(new URLSearchParams(body).get('code'), 'base64url').toString());
  if (asked.lie === 'silent') return;
  if (asked.lie === 'endless') {
    answer.writeHead(200, { 'content-type': 'application/json' });
    const pour = () => { while (answer.write('x'.repeat(65536))); answer.once('drain', pour); };
    return pour();
  }
  if (asked.lie === 'redirect') { answer.writeHead(302, { location: `${issuer}/keys` }); return answer.end(); }
  if (asked.lie === 'refusal') return say({ error: 'invalid_grant', error_description: '<script>alert(1)</script>' }, 400);
  return say({ access_token: 'a', token_type: 'Bearer', id_token: token(asked) });
}).listen(Number(port), '127.0.0.1');
