'use strict';
// What the JavaScript client `ali-ons` can do.
//
//     NODE_PATH=… node scenarios.js ADDRESS SCENARIO,SCENARIO MARK
//
// Runs the scenarios concurrently and prints one JSON line for each.

const assert = require('assert');
const { Consumer, Message, Producer } = require('ali-ons');

const PATIENCE_MS = 45000; // the client looks for its queues every 20 s
const LOOK_EVERY_MS = 20;

const quiet = { info() {}, warn() {}, error() {}, debug() {} };
const moment = ms => new Promise(resolve => setTimeout(resolve, ms));

class Stand {
  constructor(address, name, mark) {
    this.topic = `Interop${mark}-${name}`;
    this.group = `interop${mark}-${name}`;
    this.counts = {};
    this.members = 0;
    this.options = {
      nameSrv: address,
      accessKeyId: 'x',
      accessKeySecret: 'y',
      namespace: '',
      logger: quiet,
      httpclient: { request: async () => { throw new Error('no web service is asked'); } },
    };
  }

  client(Kind, options) {
    const one = new Kind({
      ...this.options, instanceName: `${this.group}-${++this.members}`, ...options,
    });
    one.on('error', () => {}); // handlers fail on purpose; what should come is waited for
    return one;
  }

  async producer() {
    const one = this.client(Producer, { producerGroup: `${this.group}-sender` });
    await one.ready();
    await this.createTopic(one);
    return one;
  }

  // it asks for a topic's route and gives up: others create topics, as its own code can
  async createTopic(producer) {
    const inner = producer._mqClient;
    const route = await inner.getDefaultTopicRouteInfoFromNameServer('TBW102', 3000);
    const topic = {
      topicName: this.topic, readQueueNums: 4, writeQueueNums: 4, perm: 6,
      topicFilterType: 'SINGLE_TAG', topicSysFlag: 0, order: false,
    };
    await inner.createTopic(route.brokerDatas[0].brokerAddrs['0'], 'TBW102', topic, 3000);
    const end = Date.now() + PATIENCE_MS;
    for (;;) {
      try {
        await inner.updateTopicRouteInfoFromNameServer(this.topic);
        return;
      } catch (notYet) {
        if (Date.now() > end) throw notYet;
        await moment(LOOK_EVERY_MS);
      }
    }
  }

  async consumed(handler, tags = '*', options = {}) {
    const one = this.client(Consumer, { consumerGroup: this.group, ...options });
    one.subscribe(this.topic, tags, handler);
    await one.ready();
    return one;
  }

  message(body, tag = 'a-tag') {
    const one = new Message(this.topic, tag, body);
    one.keys = ['a-key', 'b-key'];
    one.properties['città'] = 'Zürich';
    return one;
  }
}

async function enough(seen, count) {
  const end = Date.now() + PATIENCE_MS;
  while (seen.length < count && Date.now() < end) await moment(LOOK_EVERY_MS);
  assert.strictEqual(seen.length, count, `${seen.length} of ${count} messages came`);
}

const scenarios = {
  async send(stand) {
    const producer = await stand.producer();
    const bodies = ['Grüße 🚀', 'x'.repeat(100000)];
    const ids = [];
    for (const body of bodies) {
      const result = await producer.send(stand.message(body));
      assert.strictEqual(result.sendStatus, 'SEND_OK');
      ids.push(result.msgId);
    }
    const seen = [];
    await stand.consumed(async message => { seen.push(message); });
    await enough(seen, 2);
    seen.sort((one, other) => one.body.length - other.body.length);
    assert.deepStrictEqual(seen.map(one => one.body.toString()), bodies);
    for (const one of seen) {
      assert.strictEqual(one.tags, 'a-tag');
      assert.strictEqual(one.keys, 'a-key b-key');
      assert.strictEqual(one.properties['città'], 'Zürich');
      assert(ids.includes(one.msgId), one.msgId);
    }
    stand.counts.seen = seen.length;
  },

  async live(stand) {
    const producer = await stand.producer();
    await producer.send(stand.message('first'));
    const seen = [];
    await stand.consumed(async message => {
      seen.push([message.body.toString(), Date.now() - Number(message.bornTimestamp)]);
    }, 'a-tag || c-tag');
    await enough(seen, 1);
    await producer.send(stand.message('other', 'b-tag'));
    await producer.send(stand.message('live', 'c-tag'));
    await enough(seen, 2);
    assert.strictEqual(seen[1][0], 'live');
    assert(seen[1][1] < 5000, `it took ${seen[1][1]} ms`);
    stand.counts.seen = seen.length;
  },

  async retry(stand) {
    const producer = await stand.producer();
    const sent = await producer.send(stand.message('again'));
    const seen = [];
    await stand.consumed(async message => {
      seen.push([
        message.body.toString(), message.reconsumeTimes,
        message.originMessageId || message.msgId, message.topic,
      ]);
      if (message.reconsumeTimes === 0) throw new Error('on purpose');
    });
    await enough(seen, 2);
    assert.deepStrictEqual(seen, [0, 1].map(times => ['again', times, sent.msgId, stand.topic]));
    stand.counts.attempts = seen.length;
  },

  async delay(stand) {
    const producer = await stand.producer();
    const late = stand.message('late');
    late.delayTimeLevel = 2;
    await producer.send(stand.message('first'));
    await producer.send(late);
    const seen = [];
    await stand.consumed(async message => {
      seen.push([message.body.toString(), Date.now() - Number(message.bornTimestamp)]);
    });
    await enough(seen, 2);
    assert.deepStrictEqual(seen.map(one => one[0]), ['first', 'late']);
    assert(seen[1][1] >= 2000, `it came after ${seen[1][1]} ms`);
    stand.counts.seen = seen.length;
  },

  async broadcasting(stand) {
    const producer = await stand.producer();
    await producer.send(stand.message('first'));
    const seen = [[], []];
    for (const own of seen) {
      await stand.consumed(
        async message => { own.push(message.body.toString()); }, '*',
        { isBroadcast: true, consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET' });
    }
    for (const own of seen) await enough(own, 1);
    for (let number = 0; number < 4; number++) await producer.send(stand.message(`${number}`));
    for (const own of seen) {
      await enough(own, 5);
      assert.deepStrictEqual([...own].sort(), ['0', '1', '2', '3', 'first']);
    }
    stand.counts.seen_by_each = 5;
  },
};

async function tried(address, name, mark) {
  const stand = new Stand(address, name, mark);
  const began = Date.now();
  let detail = '';
  try {
    await scenarios[name](stand);
  } catch (failure) { // whatever it was, it becomes the scenario's line
    detail = `${failure}`;
  }
  const seconds = (Date.now() - began) / 1000;
  const line = { name, ok: !detail, seconds, counts: stand.counts, detail };
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

const [address, names, mark] = process.argv.slice(2);
Promise.all(names.split(',').map(name => tried(address, name, mark))).then(() => process.exit(0));
