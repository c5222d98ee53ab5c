// zod 4: every type's JSON schema works as a strict response_format whose text is valid. A keyword that no grammar can express is refused
// by name if the schema is strict; otherwise it is left out and named in a header.
import assert from 'node:assert/strict';
import { z } from 'zod';
import { ask } from './harness.mjs';

const person = z.object({ a: z.string().max(5), b: z.int32().optional() });
const types = {
  string: z.string(), min: z.string().min(3), max: z.string().max(5), length: z.string().length(4),
  regex: z.string().regex(/^[a-z]{1,5}$/), lowercase: z.string().lowercase(), uppercase: z.string().uppercase(),
  startsWith: z.string().startsWith('a'), endsWith: z.string().endsWith('b'), includes: z.string().includes('c'),
  email: z.email(), uuid: z.uuid(), uuidv4: z.uuidv4(), guid: z.guid(), url: z.url(), nanoid: z.nanoid(), cuid: z.cuid(), cuid2: z.cuid2(),
  ulid: z.ulid(), xid: z.xid(), ksuid: z.ksuid(), ipv4: z.ipv4(), ipv6: z.ipv6(), cidrv4: z.cidrv4(), cidrv6: z.cidrv6(),
  base64: z.base64(), base64url: z.base64url(), e164: z.e164(), jwt: z.jwt(),
  isoDate: z.iso.date(), isoTime: z.iso.time(), isoDatetime: z.iso.datetime(), isoOffset: z.iso.datetime({ offset: true }),
  number: z.number(), int: z.int(), int32: z.int32(), float32: z.float32(), positive: z.number().positive(), nonnegative: z.int().nonnegative(),
  boolean: z.boolean(), null: z.null(), any: z.any(), unknown: z.unknown(), literal: z.literal('a'), literals: z.literal(['a', 1, null]),
  enum: z.enum(['a', 'b']), array: z.array(z.boolean()), arrayMin: z.array(z.boolean()).min(1).max(3), tuple: z.tuple([z.boolean(), z.int32()]),
  tupleRest: z.tuple([z.boolean()], z.int32()), object: person, strictObject: z.strictObject({ a: z.boolean() }),
  looseObject: z.looseObject({ a: z.boolean() }), catchall: z.object({ a: z.boolean() }).catchall(z.int()), record: z.record(z.string(), z.int()),
  recordOfEnum: z.record(z.enum(['a', 'b']), z.boolean()), partialRecord: z.partialRecord(z.enum(['a', 'b']), z.boolean()),
  recordOfRegex: z.record(z.string().regex(/^[a-z]$/), z.boolean()), json: z.json(), union: z.union([z.boolean(), z.int32()]),
  discriminatedUnion: z.discriminatedUnion('k', [z.object({ k: z.literal('a') }), z.object({ k: z.literal('b'), n: z.boolean() })]),
  intersection: z.intersection(z.object({ a: z.boolean() }), z.object({ b: z.boolean() })), nullable: z.boolean().nullable(),
  default: z.boolean().default(true), readonly: z.boolean().readonly(), never: z.object({ a: z.never().optional() }),
  regexAndLength: z.string().regex(/^[a-z]+$/).max(5), regexes: z.string().startsWith('a').endsWith('b').min(3).max(9),
  hostname: z.hostname(), emoji: z.emoji(), isoDuration: z.iso.duration(), multipleOf: z.number().multipleOf(5),
  step: z.number().min(0).max(100).multipleOf(0.5), base64AndLength: z.base64().min(4).max(8),
};
const relaxed = {
  lookBehind: [z.string().regex(/(?<=a)b/), '#/properties/v/pattern'],
  backReference: [z.string().regex(/^(a|b)\1$/), '#/properties/v/pattern'],
  largeMultiple: [z.int().multipleOf(10007), '#/properties/v/multipleOf'],
};

// Their format says more than their pattern, and a format is only an annotation.
const annotated = ['guid', 'url', 'jwt'];

export default async function (check, { v1, key, model }) {
  const request = async (type, strict) => {
    const schema = z.toJSONSchema(z.object({ v: type }));
    const body = { model, messages: ask, max_tokens: 60, seed: 7, response_format: { type: 'json_schema', json_schema: { name: 'n', strict, schema } } };
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
    const answer = await fetch(`${v1}/chat/completions`, { method: 'POST', headers, body: JSON.stringify(body) });
    return { status: answer.status, json: await answer.json(), relaxed: answer.headers.get('x-kin-relaxed') };
  };
  for (const [name, type] of Object.entries(types)) {
    await check(`zod: ${name} is a schema whose texts are valid`, async () => {
      const { status, json, relaxed } = await request(type, true);
      assert.equal(status, 200, JSON.stringify(json));
      assert.equal(relaxed, null);
      const [{ finish_reason, message }] = json.choices;
      if (finish_reason !== 'stop') return;
      const value = JSON.parse(message.content);
      if (annotated.includes(name)) assert.equal(typeof value.v, 'string');
      else z.fromJSONSchema(z.toJSONSchema(z.object({ v: type }))).parse(value);
    });
  }
  for (const [name, [type, word]] of Object.entries(relaxed)) {
    await check(`zod: ${name} is refused by name where the schema is strict, else named`, async () => {
      const { status, json } = await request(type, true);
      assert.equal(status, 400);
      assert.ok(json.error.message.includes(word), json.error.message);
      const loose = await request(type, false);
      assert.equal(loose.status, 200, JSON.stringify(loose.json));
      assert.ok(loose.relaxed.startsWith(word), loose.relaxed);
    });
  }
}
