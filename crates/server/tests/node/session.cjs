// What node-redis's users do, against the server on port argv[2] in protocol argv[3].
// NODE_PATH names the folder in which `npm ci` has put the client.

const assert = require('node:assert/strict');
const { createClient, RESP_TYPES } = require('redis');

const RESP = Number(process.argv[3]);
// On a busy machine a connection may take its time.
const socket = { host: '127.0.0.1', port: Number(process.argv[2]), reconnectStrategy: false, connectTimeout: 0 };
// Moments stay the same however long the script takes.
const MOMENT = 4102444800;

async function connect() {
  const client = createClient({ socket, RESP, name: 'script' });
  client.on('error', (error) => {
    throw error;
  });
  return client.connect();
}

async function main() {
  const db = await connect();
  assert.equal(await db.flushAll(), 'OK');
  assert.equal(await db.ping(), 'PONG');
  assert.equal(await db.clientGetName(), 'script');

  const bytes = Buffer.from([0, 255, 13, 10]);
  const raw = db.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
  assert.equal(await db.set('k', bytes), 'OK');
  assert.deepEqual(await raw.get('k'), bytes);
  assert.equal(await db.get('missing'), null);
  assert.equal(await db.set('k', 'w', { NX: true }), null);
  assert.equal(await db.set('k', 'v', { EXAT: MOMENT }), 'OK');
  assert.equal(await db.expireTime('k'), MOMENT);
  assert.equal(await db.pExpireTime('k'), MOMENT * 1000);
  const began = performance.now();
  assert.equal(await db.set('k', 'v', { EX: 5000 }), 'OK');
  const left = [(await db.ttl('k')) * 1000, await db.pTTL('k')];
  const passed = performance.now() - began;
  // TTL rounds to seconds.
  assert.ok(left.every((ms) => ms <= 5_000_000 && ms + passed + 600 >= 5_000_000), `${left} after ${passed} ms`);
  assert.equal(await db.expire('k', 50, 'GT'), 0);
  assert.equal(await db.persist('k'), 1);
  assert.equal(await db.ttl('k'), -1);
  assert.equal(await db.getEx('k', { type: 'EXAT', value: MOMENT }), 'v');
  assert.equal(await db.expireTime('k'), MOMENT);
  assert.equal(await db.getSet('k', 'w'), 'v');
  assert.equal(await db.getDel('k'), 'w');
  assert.equal(await db.exists('k'), 0);

  assert.equal(await db.mSet({ a: '1', b: '2' }), 'OK');
  assert.equal(Number(await db.mSetNX({ b: '3', c: '4' })), 0);
  assert.deepEqual(await db.mGet(['a', 'missing', 'b']), ['1', null, '2']);
  assert.equal(await db.incrBy('a', 41), 42);
  assert.equal(await db.decr('a'), 41);
  assert.equal(await db.incrByFloat('f', 10.5), '10.5');
  assert.equal(await db.incrByFloat('f', 0.1), '10.6');
  assert.equal(await db.append('text', 'Hello World'), 11);
  assert.equal(await db.setRange('text', 6, 'Redis'), 11);
  assert.equal(await db.getRange('text', -5, -1), 'Redis');
  assert.equal(await db.strLen('text'), 11);
  assert.equal(await db.rename('text', 'moved'), 'OK');
  assert.equal(Number(await db.renameNX('moved', 'a')), 0);
  assert.equal(Number(await db.copy('moved', 'copied')), 1);
  assert.equal(await db.type('copied'), 'string');
  assert.equal(await db.touch(['a', 'b', 'missing']), 2);
  assert.deepEqual((await db.keys('?')).sort(), ['a', 'b', 'f']);
  assert.ok((await db.keys('*')).includes(await db.randomKey()));
  assert.equal(await db.objectEncoding('a'), 'int');
  assert.ok((await db.memoryUsage('a')) > 0);
  assert.equal(await db.unlink(['a', 'b', 'missing']), 2);
  assert.equal(await db.dbSize(), 3);
  await assert.rejects(db.incr('moved'), { message: 'ERR value is not an integer or out of range' });
  await assert.rejects(db.rename('missing', 'x'), { message: 'ERR no such key' });
  await assert.rejects(db.sendCommand(['NOSUCH', 'x']), /unknown command 'NOSUCH'/);

  // What is asked for at once goes out as one pipeline.
  const numbers = Array.from({ length: 5000 }, (_, number) => number);
  await Promise.all(numbers.map((number) => db.set(`key:${number}`, `value ${number}`)));
  const values = await Promise.all(numbers.map((number) => db.get(`key:${number}`)));
  assert.ok(values.every((value, number) => value === `value ${number}`));
  const many = await db.mGet(numbers.map((number) => `key:${number}`));
  assert.deepEqual(many, values);
  const scanned = new Set();
  for await (const keys of db.scanIterator({ MATCH: 'key:*', COUNT: 500 })) {
    keys.forEach((key) => scanned.add(key));
  }
  assert.equal(scanned.size, 5000);

  const large = Buffer.alloc(3_000_000, 'large value ');
  await db.set('large', large);
  assert.deepEqual(await raw.get('large'), large);
  assert.deepEqual(await raw.getRange('large', 1_000_000, -1), large.subarray(1_000_000));

  // Connections share one counter.
  const clients = await Promise.all([connect(), connect(), connect()]);
  await Promise.all(clients.flatMap((client) => numbers.slice(0, 500).map(() => client.incr('counter'))));
  assert.equal(await db.get('counter'), '1500');
  clients.forEach((client) => client.destroy());

  assert.match(await db.info('memory'), /used_memory_rss:\d+/);
  assert.match((await db.configGet('maxmemory')).maxmemory, /^\d+$/);
  assert.ok((await db.commandCount()) > 50);
  assert.equal((await db.commandInfo(['getrange']))[0].arity, 4);
  assert.deepEqual(await db.commandGetKeys(['MSET', 'a', '1', 'b', '2']), ['a', 'b']);
  assert.equal(await db.flushDb(), 'OK');
  await db.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
