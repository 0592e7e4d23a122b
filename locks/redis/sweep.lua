-- Removes what is over and what nobody uses of one name. Everything that uses
-- the name does the first by itself; this is for names that nobody uses.
--
-- KEYS: as in queue.lua. ARGV: 1 for how many ms it must be over, 2 the name,
-- 3 the format that the caller knows.
-- Answer: how many things were removed, or the format if that is another.
local S, H, Q, D, E, G, INDEX = unpack(KEYS)

local format, stored = unpack(redis.call('HMGET', S, 'format', 'name'))
if format and format ~= ARGV[3] then return format end
if stored and stored ~= '' and stored ~= ARGV[2] then return 0 end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local over = now - tonumber(ARGV[1])
local removed = 0

for _, dead in ipairs(redis.call('ZRANGEBYSCORE', H, '-inf', over)) do
  redis.call('ZREM', H, dead)
  redis.call('HDEL', E, dead, dead .. '@', dead .. '!')
  removed = removed + 1
end
for _, dead in ipairs(redis.call('ZRANGEBYSCORE', D, '-inf', over)) do
  redis.call('ZREM', D, dead)
  redis.call('ZREM', Q, dead)
  redis.call('HDEL', E, dead:sub(33))
  removed = removed + 1
end
-- A name that no key speaks of any more need not be listed either.
local empty = INDEX ~= nil
for _, key in ipairs({S, H, Q, D, E}) do empty = empty and redis.call('PTTL', key) == -2 end
if empty then
  removed = removed + redis.call('ZREM', INDEX, ARGV[2])
end
return removed
