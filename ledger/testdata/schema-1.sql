BEGIN TRANSACTION;
CREATE TABLE audit (
		seq       INTEGER PRIMARY KEY,
		time      BIGINT  NOT NULL,
		kind      TEXT    NOT NULL,
		operation TEXT    NOT NULL,
		line      TEXT    NOT NULL,
		hash      BYTEA   NOT NULL
	);
INSERT INTO "audit" VALUES(1,1796040004000000000,'decision','op4','{"seq":1,"prev":"0000000000000000000000000000000000000000000000000000000000000000","v":1,"time":"2026-11-30T12:00:04.000000000Z","kind":"decision","caller":"gateway","actor":"user:7","operation":"op4","attempt":1}',X'77F30074D95688851A3271A5545BA6C477F28E65FF6011DA3C06B15CB080AF54');
INSERT INTO "audit" VALUES(2,1796040006000000000,'decision','op3','{"seq":2,"prev":"77f30074d95688851a3271a5545ba6c477f28e65ff6011da3c06b15cb080af54","v":1,"time":"2026-11-30T12:00:06.000000000Z","kind":"decision","caller":"gateway","actor":"user:7","operation":"op3","attempt":1}',X'5555A2E2752831B6D5B56CCC42EBC7F8E26AB76CEDA3AA0F450A639606C52EB5');
INSERT INTO "audit" VALUES(3,1796040008000000000,'sending','op3','{"seq":3,"prev":"5555a2e2752831b6d5b56ccc42ebc7f8e26ab76ceda3aa0f450a639606c52eb5","v":1,"time":"2026-11-30T12:00:08.000000000Z","kind":"sending","operation":"op3","attempt":1,"state":"sending","ran":"unknown","evidence":"none"}',X'2C44824B2FFC5B9621A507FE2F1B502E1A8D4B2C2C3BEDFDE1AE0E82347D18C9');
INSERT INTO "audit" VALUES(4,1796040010000000000,'decision','op2','{"seq":4,"prev":"2c44824b2ffc5b9621a507fe2f1b502e1a8d4b2c2c3bedfde1ae0e82347d18c9","v":1,"time":"2026-11-30T12:00:10.000000000Z","kind":"decision","caller":"gateway","actor":"user:7","operation":"op2","attempt":1}',X'13C46021E6FD1ACC06FE6984259D8B4D8FA2FB9588B14820E6FADF969E2DDD75');
INSERT INTO "audit" VALUES(5,1796040012000000000,'sending','op2','{"seq":5,"prev":"13c46021e6fd1acc06fe6984259d8b4d8fa2fb9588b14820e6fadf969e2ddd75","v":1,"time":"2026-11-30T12:00:12.000000000Z","kind":"sending","operation":"op2","attempt":1,"state":"sending","ran":"unknown","evidence":"none"}',X'B6351293A18799724C7F47F9674BBA1BAE2D564569C0CDFC05E0509DCFC109EF');
INSERT INTO "audit" VALUES(6,1796040014000000000,'outcome','op2','{"seq":6,"prev":"b6351293a18799724c7f47f9674bba1bae2d564569c0cdfc05e0509dcfc109ef","v":1,"time":"2026-11-30T12:00:14.000000000Z","kind":"outcome","operation":"op2","attempt":1,"state":"succeeded","ran":"yes","evidence":"peer","legs":[{"leg":"exchange","budget_ms":20000,"ms":3}]}',X'E8660811D9FF45DB95C4F48FC9DBF25E7E1FA5FA1786A19B83D987713C3C8B81');
INSERT INTO "audit" VALUES(7,1796040016000000000,'decision','op1','{"seq":7,"prev":"e8660811d9ff45db95c4f48fc9dbf25e7e1fa5fa1786a19b83d987713c3c8b81","v":1,"time":"2026-11-30T12:00:16.000000000Z","kind":"decision","caller":"gateway","actor":"user:7","operation":"op1","attempt":1}',X'9828BEEF47331C58A0EA0285EF2768BD93FE21BED2901B75B5BE7B08081CE4CE');
INSERT INTO "audit" VALUES(8,1796040018000000000,'sending','op1','{"seq":8,"prev":"9828beef47331c58a0ea0285ef2768bd93fe21bed2901b75b5be7b08081ce4ce","v":1,"time":"2026-11-30T12:00:18.000000000Z","kind":"sending","operation":"op1","attempt":1,"state":"sending","ran":"unknown","evidence":"none"}',X'A9126A8BE68C930662FA5B7188A5E2EA5F914167B5746F2381C319CC40F522AD');
INSERT INTO "audit" VALUES(9,1796040020000000000,'outcome','op1','{"seq":9,"prev":"a9126a8be68c930662fa5b7188a5e2ea5f914167b5746f2381c319cc40f522ad","v":1,"time":"2026-11-30T12:00:20.000000000Z","kind":"outcome","operation":"op1","attempt":1,"state":"succeeded","ran":"yes","evidence":"peer","legs":[{"leg":"exchange","budget_ms":20000,"ms":3}]}',X'201DAE30B449DF659EBC668F76C0AD23363DC1CD71A489ECE870299D012F2E63');
INSERT INTO "audit" VALUES(10,1796040021000000000,'drop','op1','{"seq":10,"prev":"201dae30b449df659ebc668f76c0ad23363dc1cd71a489ece870299d012f2e63","v":1,"time":"2026-11-30T12:00:21.000000000Z","kind":"drop","operation":"op1","attempt":1,"hold":"dropped"}',X'64C8957838178F9EF9298F90BB2181585E6C8ACFE80AB7AB533C967E0ED2C25B');
CREATE TABLE meta (
		one     BIGINT PRIMARY KEY CHECK (one = 1),
		ledger  TEXT   NOT NULL,
		since   BIGINT NOT NULL,
		opening TEXT   NOT NULL
	);
INSERT INTO "meta" VALUES(1,'2gq7pthv44aq7krlnxike6g7at',1796040002000000000,'geu6ngxzwrf4dgamrhmigrzie2');
CREATE TABLE migrations (number BIGINT PRIMARY KEY, applied BIGINT NOT NULL);
INSERT INTO "migrations" VALUES(1,1796040001000000000);
CREATE TABLE operations (
		id          TEXT   PRIMARY KEY,
		caller      TEXT   NOT NULL,
		actor       TEXT   NOT NULL,
		request_key TEXT   NOT NULL,
		jti         TEXT   NOT NULL,
		run_id      TEXT   NOT NULL,
		server      TEXT   NOT NULL,
		tool        TEXT   NOT NULL,
		fingerprint BYTEA  NOT NULL,
		arguments   BYTEA  NOT NULL,
		attempt     BIGINT NOT NULL,
		state       TEXT   NOT NULL,
		ran         TEXT   NOT NULL,
		evidence    TEXT   NOT NULL,
		cause       TEXT   NOT NULL,
		deadline    BIGINT NOT NULL,
		created     BIGINT NOT NULL,
		updated     BIGINT NOT NULL,
		legs        TEXT   NOT NULL,
		hold        TEXT   NOT NULL,
		snapshot    TEXT   NOT NULL,
		grant_line  TEXT   NOT NULL,
		profile     TEXT   NOT NULL,
		audience    TEXT   NOT NULL,
		scopes      TEXT   NOT NULL
	);
INSERT INTO "operations" VALUES('op4','gateway','user:7','key4','','run1','records','search',X'0100000000000000000000000000000000000000000000000000000000000000',X'0200000000000000000000000000000000000000000000000000000000000000',1,'reserved','no','local','',1796040060000000000,1796040003000000000,1796040003000000000,'null','held','s1','profiles.yaml:7','company','mcp-api','["records.read"]');
INSERT INTO "operations" VALUES('op3','gateway','user:7','key3','','run1','records','search',X'0100000000000000000000000000000000000000000000000000000000000000',X'0200000000000000000000000000000000000000000000000000000000000000',1,'sending','unknown','none','',1796040060000000000,1796040005000000000,1796040007000000000,'null','held','s1','profiles.yaml:7','company','mcp-api','["records.read"]');
INSERT INTO "operations" VALUES('op2','gateway','user:7','key2','','run1','records','search',X'0100000000000000000000000000000000000000000000000000000000000000',X'0200000000000000000000000000000000000000000000000000000000000000',1,'succeeded','yes','peer','',1796040060000000000,1796040009000000000,1796040013000000000,'[{"leg":"exchange","budget_ms":20000,"ms":3}]','held','s1','profiles.yaml:7','company','mcp-api','["records.read"]');
INSERT INTO "operations" VALUES('op1','gateway','user:7','key1','','run1','records','search',X'0100000000000000000000000000000000000000000000000000000000000000',X'0200000000000000000000000000000000000000000000000000000000000000',1,'succeeded','yes','peer','',1796040060000000000,1796040015000000000,1796040019000000000,'[{"leg":"exchange","budget_ms":20000,"ms":3}]','dropped','s1','profiles.yaml:7','company','mcp-api','["records.read"]');
CREATE TABLE results (
		operation TEXT  PRIMARY KEY REFERENCES operations (id),
		body      BYTEA NOT NULL
	);
INSERT INTO "results" VALUES('op2',X'7B226F66223A226F7032227D');
INSERT INTO "results" VALUES('op1',X'7B226F66223A226F7031227D');
CREATE UNIQUE INDEX operations_key ON operations (caller, actor, request_key);
CREATE UNIQUE INDEX operations_jti ON operations (caller, jti) WHERE jti <> '';
CREATE INDEX operations_list ON operations (caller, actor, created);
CREATE INDEX operations_open ON operations (caller, created)
		WHERE state IN ('awaiting_approval', 'reserved', 'sending');
CREATE INDEX operations_held ON operations (id) WHERE hold = 'held';
COMMIT;
