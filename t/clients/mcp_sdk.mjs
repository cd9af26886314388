// Others' MCP clients against a real gateway: the TypeScript SDK in its first
// line (a handshake, 2025-11-25) and its second (2026-07-28, without one).
//
//     node mcp_sdk.mjs v1|v2 FOLDER-OF-node_modules URL TOKEN
//
// Prints TAP.  The client itself checks each result against its tool's
// outputSchema, and refuses what is no valid message.

import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [, , line, folder, url, token] = process.argv;
const require = createRequire(folder + '/x.js');
const load = (name) => import(pathToFileURL(require.resolve(name)).href);

const headers = { Authorization: 'Bearer ' + token };
let number = 0;
let failed = 0;

async function test(name, body) {
    number++;
    try {
        await body();
        console.log(`ok ${number} - ${name}`);
    } catch (error) {
        failed++;
        console.log(`not ok ${number} - ${name}`);
        console.log('#   ' + String(error && error.stack || error)
                    .replaceAll('\n', '\n#   '));
    }
}

function check(good, what, ...details) {
    if (!good)
        throw new Error(what + ' ' + details.map(
            (d) => JSON.stringify(d)).join(' ').slice(0, 2000));
}

async function connect() {
    let Client, Transport, options = {};
    if (line === 'v1') {
        ({ Client } = await load('@modelcontextprotocol/sdk/client/index.js'));
        ({ StreamableHTTPClientTransport: Transport } = await load(
            '@modelcontextprotocol/sdk/client/streamableHttp.js'));
    } else {
        ({ Client, StreamableHTTPClientTransport: Transport } =
            await load('@modelcontextprotocol/client'));
        options = { versionNegotiation: { mode: { pin: '2026-07-28' } } };
    }
    const client = new Client({ name: 'test', version: '1' }, options);
    const transport = new Transport(new URL(url),
                                    { requestInit: { headers } });
    await client.connect(transport);
    return { client, transport };
}

const { client, transport } = await connect();
let tools = {};

const text = (r) => r.content.filter((c) => c.type === 'text')
    .map((c) => c.text).join('');

async function call(name, args, more) {
    const params = { name, arguments: args };
    const options = { timeout: 150000, ...more };
    return line === 'v1' ? client.callTool(params, undefined, options)
                         : client.callTool(params, options);
}

async function done(name, args) {
    const r = await call(name, args);
    check(!r.isError, name + ' failed', r);
    check(r.structuredContent, name + ' has no structuredContent', r);
    return r;
}

await test('the handshake', async () => {
    const info = client.getServerVersion();
    check(info && info.name === 'sandbox-for-nginx', 'who it is', info);
    check(client.getServerCapabilities().tools, 'tools');
    check(client.getInstructions(), 'instructions');
    if (line === 'v1') {
        check(transport.protocolVersion === '2025-11-25', 'revision',
              transport.protocolVersion);
        check(transport.sessionId === undefined, 'no session');
        await client.ping();
    }
});

await test('the tools', async () => {
    const list = await client.listTools();
    tools = Object.fromEntries(list.tools.map((t) => [t.name, t]));
    const wanted = ['run_command', 'upload_file', 'download_file',
                    'search_files', 'read_file', 'save_file', 'edit_file',
                    'delete_file', 'load_skill'];
    check(wanted.every((n) => tools[n]) && list.tools.length === 9,
          'all nine', Object.keys(tools));
    for (const t of list.tools)
        check(t.inputSchema.additionalProperties === false && t.outputSchema,
              'schemas', t);
});

await test('run_command', async () => {
    let r = await done('run_command', { command: 'echo hi; echo no >&2; ' +
        'exit 3', env: { A: 'b' }, timeoutSeconds: 20 });
    check(r.structuredContent.exitCode === 3 && /hi\n/.test(text(r)) &&
          /no\n/.test(text(r)) && /exit code 3/.test(text(r)), 'told', r);
    r = await done('run_command', { command: "python3 -c 'print(6 * 7)'" });
    check(r.structuredContent.stdout === '42\n', 'Python', r);
});

await test('save_file, edit_file, read_file', async () => {
    let r = await done('save_file', { path: 'a/ü.txt', content: 'one two\n' });
    check(r.structuredContent.created, 'made', r);
    r = await done('edit_file', { path: 'a/ü.txt', old_string: 'one',
                                  new_string: '$&1' });
    check(r.structuredContent.replacements === 1, 'edited', r);
    r = await done('read_file', { path: 'a/ü.txt' });
    check(r.structuredContent.text === '$&1 two\n', 'as it is', r);
    r = await call('edit_file', { path: 'a/ü.txt', old_string: 'absent',
                                  new_string: 'x' });
    check(r.isError && /edit_not_found/.test(text(r)) && /0 times/.test(
        text(r)), 'refused', r);
});

await test('upload_file, and an image to look at', async () => {
    const png = Buffer.from('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAA' +
        'DUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==', 'base64');
    await done('upload_file', { path: 'dot.png',
                                contentBase64: png.toString('base64') });
    const r = await done('read_file', { path: 'dot.png' });
    const image = r.content.find((c) => c.type === 'image');
    check(image && image.mimeType === 'image/png' &&
          Buffer.from(image.data, 'base64').equals(png), 'the image', r);
});

await test('search_files', async () => {
    const r = await done('search_files', { pattern: 't.o', path: 'a' });
    check(r.structuredContent.matches.length === 1 &&
          r.structuredContent.matches[0].path === '/home/sandbox/a/ü.txt',
          'found', r);
});

await test('download_file', async () => {
    const r = await done('download_file', { path: 'a/ü.txt',
                                            name: 'for you.txt' });
    check(r.structuredContent.name === 'for you.txt', 'name', r);
    const got = await fetch(r.structuredContent.link.url);
    check(got.status === 200 && await got.text() === '$&1 two\n', 'the link');
});

await test('load_skill', async () => {
    const r = await done('load_skill', { name: 'charts' });
    check(/import chart_tools/.test(text(r)), 'its instructions', r);
    const s = await done('run_command', { command: 'python3 -c ' +
        '"import chart_tools; print(chart_tools.draw())"' });
    check(s.structuredContent.stdout === 'drawn\n', 'it is there', s);
});

await test('delete_file', async () => {
    await done('delete_file', { path: 'a', recursive: true });
    const r = await call('read_file', { path: 'a/ü.txt' });
    check(r.isError && /file_not_found/.test(text(r)), 'gone', r);
});

await test('what is refused', async () => {
    let r = await call('run_command', { command: 'true', nonsense: 1 });
    check(r.isError && /nonsense/.test(text(r)), 'the field is named', r);
    try {
        r = await call('no_such_tool', {});
    } catch (error) {
        check(/tool/i.test(error.message), 'an error', error.message);
        return;
    }
    throw new Error('an unknown tool had a result');
});

await test('a call that is cancelled', async () => {
    const stop = new AbortController();
    const running = call('run_command', { command: 'touch begun; sleep 100; ' +
        'echo late' }, { signal: stop.signal });
    const caught = running.then(() => null, (error) => error);
    while ((await call('read_file', { path: 'begun' })).isError)
        await new Promise((resolve) => setTimeout(resolve, 50));
    stop.abort('enough');
    check(await caught, 'it ends with an error');
    // the next one has its turn: the first is gone with its tree, not ended
    const r = await done('run_command', { command: 'echo next; ' +
        'pgrep -f "^sleep 100" || echo none' });
    check(r.structuredContent.stdout === 'next\nnone\n', 'gone', r);
    const list = await (await fetch(url.replace(/mcp$/, 'commands'),
                                    { headers })).json();
    check(list.commands[1].outcome === 'cancelled', 'its outcome', list);
});

await client.close();
console.log(`1..${number}`);
process.exit(failed ? 1 : 0);
